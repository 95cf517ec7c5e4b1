//! What saves and failures cost.

use thiserror::Error;

use crate::{interval::optimal_interval, two_levels::TwoLevels};

/// What a save, a restore and the time between failures are, and what follows from that.
///
/// The interval and the overhead are worked out once, so that a decision costs next to nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    save: f64,
    restore: f64,
    mtbf: f64,
    interval: f64,
    overhead: f64,
    /// What each segment's own factor is multiplied by.
    scale: f64,
}

/// Times from which nothing can be worked out.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum CostsError {
    /// The time of a save.
    #[error("the time of a save has to be a positive number of seconds, not {0}")]
    Save(f64),
    /// The time of a restore.
    #[error("the time of a restore has to be a number of seconds, zero or more, not {0}")]
    Restore(f64),
    /// The mean time between failures.
    #[error("the mean time between failures has to be a positive number of seconds, not {0}")]
    Mtbf(f64),
}

impl Costs {
    /// A save takes `save` seconds, a restore `restore`, and failures come every `mtbf` seconds on average.
    ///
    /// # Errors
    /// If `save` or `mtbf` is not positive, `restore` is negative, or one of them is not finite.
    pub fn new(save: f64, restore: f64, mtbf: f64) -> Result<Self, CostsError> {
        if !(save > 0.0 && save.is_finite()) {
            return Err(CostsError::Save(save));
        }
        if !(restore >= 0.0 && restore.is_finite()) {
            return Err(CostsError::Restore(restore));
        }
        if !(mtbf > 0.0 && mtbf.is_finite()) {
            return Err(CostsError::Mtbf(mtbf));
        }
        let interval = optimal_interval(save, mtbf);
        let costs = Self {
            save,
            restore,
            mtbf,
            interval,
            overhead: 0.0,
            scale: mtbf * (restore / mtbf).exp(),
        };
        Ok(Self {
            overhead: costs.segment(interval) / interval - 1.0,
            ..costs
        })
    }

    /// How long a save takes, in seconds.
    pub fn save(&self) -> f64 {
        self.save
    }

    /// How long a restore takes, in seconds.
    pub fn restore(&self) -> f64 {
        self.restore
    }

    /// The mean time between failures, in seconds.
    pub fn mtbf(&self) -> f64 {
        self.mtbf
    }

    /// The best compute time between two saves, in seconds ([`optimal_interval`]).
    pub fn interval(&self) -> f64 {
        self.interval
    }

    /// By which part of its compute time a run becomes longer through saves, failures and restores, if it saves at the
    /// best moments: 0.1 is ten percent.
    pub fn overhead(&self) -> f64 {
        self.overhead
    }

    /// The expected time until `compute` seconds of work and a save after them are done, with all the restores and
    /// repetitions that failures bring (the paper, equation 3). Infinite if it cannot be expressed.
    pub fn segment(&self, compute: f64) -> f64 {
        self.uninterrupted(compute + self.save)
    }

    /// The same without a save at the end, as for the last work of a run.
    pub fn last_segment(&self, compute: f64) -> f64 {
        self.uninterrupted(compute)
    }

    /// The expected time of a run of `total` seconds of work that saves each `interval` seconds (the paper, equation 4).
    /// It takes the run for a whole number of intervals, each of which ends with a save.
    pub fn run(&self, total: f64, interval: f64) -> f64 {
        total / interval * self.segment(interval)
    }

    /// By which part the overhead becomes smaller if there is a fast way to save too, which takes `save` seconds and
    /// survives the part `covers` of the failures: 0.3 is three tenths. Each way then has a period of its own. Nothing if it
    /// is best not to use the fast way, as when it takes nearly as long or survives little.
    pub fn saving_of_fast_level(&self, save: f64, covers: f64) -> f64 {
        TwoLevels::new(self, save, covers).map_or(0.0, |two| 1.0 - two.overhead / self.overhead)
    }

    /// How long `work` seconds that are left since the last save are expected to take if they are cut in the best way.
    pub(crate) fn time_of_cut(&self, work: f64) -> f64 {
        let segments = self.segments(work);
        segments * self.segment((work - self.save) / segments)
    }

    /// The compute time between two saves for which `work` seconds that are left since the last save take least, if nothing is
    /// saved at their end: all segments are equally long together with their saves. Nothing if it is best not to save any
    /// more.
    pub(crate) fn best_cut(&self, work: f64) -> Option<f64> {
        let segments = self.segments(work);
        (segments > 1.0).then(|| (work - self.save) / segments)
    }

    /// Into how many segments `work` is best cut.
    fn segments(&self, work: f64) -> f64 {
        let wanted = (work - self.save) / self.interval;
        let fewer = wanted.floor().max(1.0);
        let more = fewer + 1.0;
        let is_fewer = if fewer >= SEGMENTS_MANY {
            wanted * wanted < fewer * more
        } else {
            let time = |segments: f64| segments * self.segment((work - self.save) / segments);
            time(fewer) <= time(more)
        };
        if is_fewer { fewer } else { more }
    }

    /// An interval that is no longer than that of the [`best_cut`](Self::best_cut), and quickly found; nothing may be left of it
    /// near the end.
    pub(crate) fn shortest_cut(&self, work: f64) -> f64 {
        let fewer = ((work - self.save) / self.interval).floor();
        if fewer < 2.0 {
            return 0.0;
        }
        (work - self.save) / (fewer + 1.0)
    }

    /// The expected time until `length` seconds without a failure are over.
    fn uninterrupted(&self, length: f64) -> f64 {
        self.scale * (length / self.mtbf).exp_m1()
    }

    /// Whether a second of work costs less, or no more, if it is saved after `now` seconds than after `later`.
    pub(crate) fn is_cheaper(&self, now: f64, later: f64) -> bool {
        let rate = |compute: f64| ((compute + self.save) / self.mtbf).exp_m1() / compute;
        rate(now) <= rate(later)
    }
}

/// From so many segments on, one more or less makes so little difference that Young's model says well enough which is better.
const SEGMENTS_MANY: f64 = 8.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No other interval makes a run shorter than the best one.
        #[test]
        fn nothing_beats_the_best_interval(save in 1e-3f64..100.0, mtbf in 1.0f64..1e5, factor in 0.01f64..100.0) {
            let costs = Costs::new(save, save, mtbf).unwrap();
            let best = costs.run(1e6, costs.interval());
            prop_assert!(best <= costs.run(1e6, costs.interval() * factor) * (1.0 + 1e-12));
            prop_assert!((best / 1e6 - 1.0 - costs.overhead()).abs() <= 1e-9 * best / 1e6);
        }
    }

    /// Numbers that mean nothing are refused, each by its name.
    #[test]
    fn senseless_times_are_refused() {
        assert_eq!(Costs::new(0.0, 1.0, 1.0), Err(CostsError::Save(0.0)));
        assert_eq!(Costs::new(1.0, -1.0, 1.0), Err(CostsError::Restore(-1.0)));
        assert_eq!(
            Costs::new(1.0, 0.0, f64::INFINITY),
            Err(CostsError::Mtbf(f64::INFINITY))
        );
        assert!(matches!(Costs::new(f64::NAN, 0.0, 1.0), Err(CostsError::Save(_))));
    }
}
