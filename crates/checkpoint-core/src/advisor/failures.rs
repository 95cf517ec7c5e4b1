//! How often a program fails, learned while it runs.

use super::options::Mtbf;
use crate::journal::{History, Totals};

/// The mean time between failures: a belief from before, and the failures since.
///
/// A guess may be wrong by powers of ten, and a guess that is too long costs far more than one that is too
/// short. So the belief is a mixture of Gamma distributions of the rate of failures: one for the guess, and
/// one for each tenth of the one before it. Each has the weight of one failure, and is ten times less likely
/// than the one before. Failures at a constant rate leave a mixture of Gamma distributions with other
/// weights. The mean time between failures is the inverse of its mean rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Failures {
    told: Mtbf,
    exposure: f64,
    count: u64,
}

/// How many Gamma distributions there are: from five years they reach down to parts of a second.
const DECADES: i32 = 10;

impl Failures {
    /// By what somebody told, and what is in the journal.
    pub(super) fn new(told: Mtbf, seen: &Totals) -> Self {
        Self {
            told,
            exposure: seen.exposure,
            count: seen.failures,
        }
    }

    /// One more failure.
    pub(super) fn add(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The belief after the program ran for so many seconds since this was made.
    pub(super) fn mtbf(&self, ran: f64) -> f64 {
        let guess = match self.told {
            Mtbf::Known(mtbf) => return mtbf,
            Mtbf::Learned(guess) => guess,
        };
        let (exposure, count) = (self.exposure + ran, self.count as f64);
        // The likelihood of so many failures under a belief in `before` is before / (before + exposure)^(count + 1),
        // times what is the same for all. Its logarithm stays a number for any count.
        let beliefs = || {
            (0..DECADES).map(|decade| {
                let part = 10f64.powi(-decade);
                let before = guess * part;
                let weight = (part * before).ln() - (count + 1.0) * (before + exposure).ln();
                (before, weight)
            })
        };
        let most = beliefs()
            .map(|(_, weight)| weight)
            .fold(f64::NEG_INFINITY, f64::max);
        let (rate, all) = beliefs().fold((0.0, 0.0), |(rate, all), (before, weight)| {
            let weight = (weight - most).exp();
            (rate + weight * (count + 1.0) / (before + exposure), all + weight)
        });
        all / rate
    }
}

impl Failures {
    /// The mean time between failures by which to decide if a save takes `save` seconds. Until a failure is
    /// seen, it is so short that there is a save each hour.
    pub(super) fn cautious_mtbf(&self, ran: f64, save: f64) -> f64 {
        let mtbf = self.mtbf(ran);
        if self.count > 0 || matches!(self.told, Mtbf::Known(_)) {
            return mtbf;
        }
        // The interval is never longer than Young's, the root of twice this times the save.
        let longest = UNSEEN_INTERVAL.max(save / UNSEEN_COST);
        mtbf.min(longest * longest / (2.0 * save))
    }
}

/// Until a failure is seen, a save is made after so many seconds at the latest: a guess may be wrong by powers of ten.
const UNSEEN_INTERVAL: f64 = 3600.0;

/// But these saves take no more of the time than this part.
const UNSEEN_COST: f64 = 0.01;

impl History {
    /// The mean time between failures in which an advisor believes that begins now, in seconds, if it is told this.
    pub fn believed_mtbf(&self, told: Mtbf) -> f64 {
        Failures::new(told, self.totals()).mtbf(0.0)
    }

    /// The mean time between failures by which an advisor decides if a save takes `save` seconds. Before the
    /// first failure there is a save each hour, unless that costs more than a percent.
    pub fn cautious_mtbf(&self, told: Mtbf, save: f64) -> f64 {
        Failures::new(told, self.totals()).cautious_mtbf(0.0, save)
    }

    /// The mean time between losses of a host, learned in the same way.
    pub fn believed_host_mtbf(&self, told: Mtbf) -> f64 {
        let seen = Totals {
            failures: self.totals().hosts_lost,
            ..*self.totals()
        };
        Failures::new(told, &seen).mtbf(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mtbf(guess: f64, exposure: f64, failures: u64) -> f64 {
        let seen = Totals {
            exposure,
            failures,
            ..Totals::default()
        };
        Failures::new(Mtbf::Learned(guess), &seen).mtbf(0.0)
    }

    /// Three failures in nine seconds are believed, however reliable the machine was said to be.
    #[test]
    fn few_failures_correct_a_guess_of_years() {
        for guess in [1.6e8, 86_400.0, 3600.0, 10.0] {
            let found = mtbf(guess, 9.0, 3);
            assert!((1.0..10.0).contains(&found), "told {guess}: {found}");
        }
    }

    /// Many failures and much time decide alone, and no number of them is beyond the arithmetic.
    #[test]
    fn what_was_seen_decides_in_the_end() {
        for guess in [0.1, 100.0, 1e7] {
            let found = mtbf(guess, 1e5, 1000);
            assert!((found / 100.0 - 1.0).abs() < 0.01, "told {guess}: {found}");
        }
        assert!(mtbf(1e8, 1e12, u64::MAX).is_finite());
        assert!((mtbf(1e3, 1e9, 0) / 1e9 - 1.0).abs() < 0.01);
    }

    /// Without a failure the belief grows with the time that passed.
    #[test]
    fn time_without_failures_is_believed() {
        let found = [0.0, 1e3, 1e5, 1e7].map(|exposure| mtbf(1.6e8, exposure, 0));
        assert!(
            found.is_sorted() && found[0] > 1e7 && found[3] < 1.6e8,
            "{found:?}"
        );
    }
}
