//! How long saves take.

use crate::journal::SAVES_MAX;

/// The times of the last saves, and what to expect of the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SaveTimes {
    ring: [f64; SAVES_MAX],
    count: usize,
    mean: f64,
    p99: f64,
}

impl SaveTimes {
    /// Before there was any save: what somebody believes one takes, in seconds.
    pub(super) fn expected(seconds: f64) -> Self {
        Self {
            ring: [0.0; SAVES_MAX],
            count: 0,
            mean: seconds,
            p99: seconds * ALONE,
        }
    }

    /// One more save.
    pub(super) fn add(&mut self, seconds: f64) {
        let seconds = seconds.max(SHORTEST);
        self.ring[self.count % SAVES_MAX] = seconds;
        self.count += 1;
        let filled = self.count.min(SAVES_MAX);
        let mut sorted = self.ring;
        let sorted = &mut sorted[..filled];
        sorted.sort_unstable_by(f64::total_cmp);
        self.mean = sorted.iter().sum::<f64>() / filled as f64;
        let variance = sorted.iter().map(|time| (time - self.mean).powi(2)).sum::<f64>() / filled as f64;
        // Few saves say little about the longest ones: then a normal distribution says more.
        let at = ((filled as f64 * 0.99).ceil() as usize).clamp(1, filled) - 1;
        let p99 = sorted[at].max(self.mean + 2.326 * variance.sqrt());
        let least = if filled == 1 { ALONE * seconds } else { 0.0 };
        self.p99 = p99.max(least);
    }

    /// The last save took so many seconds longer.
    pub(super) fn lengthen_last(&mut self, seconds: f64) {
        if let Some(before) = self.count.checked_sub(1) {
            let last = self.ring[before % SAVES_MAX];
            self.count = before;
            self.add(last + seconds.max(0.0));
        }
    }

    /// Returns true if any save was measured.
    pub(super) fn is_measured(&self) -> bool {
        self.count > 0
    }

    /// How long a save takes on average, in seconds.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// How long 99 of 100 saves take at most, in seconds.
    pub(super) fn p99(&self) -> f64 {
        self.p99
    }
}

/// One save, or none, says nothing about how they differ.
const ALONE: f64 = 1.5;

/// The shortest time of a save, in seconds: a time that a clock may not be able to measure still costs
/// something.
const SHORTEST: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean and the quantiles are those of the last saves.
    #[test]
    fn saves_are_summed_up() {
        let mut times = SaveTimes::expected(2.0);
        assert_eq!((times.mean(), times.p99()), (2.0, 3.0));
        times.add(1.0);
        assert_eq!((times.mean(), times.p99()), (1.0, 1.5));
        for _ in 0..SAVES_MAX {
            times.add(4.0);
        }
        assert_eq!((times.mean(), times.p99()), (4.0, 4.0));
        for number in 0..SAVES_MAX {
            times.add(if number == 3 { 10.0 } else { 4.0 });
        }
        assert_eq!(times.p99(), 10.0);
    }
}
