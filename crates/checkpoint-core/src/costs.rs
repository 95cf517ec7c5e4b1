//! The costs of saves and failures.

use thiserror::Error;

use crate::{interval::optimal_interval, two_levels::TwoLevels, two_levels_in_steps::TwoLevelsInSteps};

/// The times of a save, of a restore and between failures, and the figures that follow from them.
///
/// The interval and the overhead are worked out once, so that a decision costs next to nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    save: f64,
    restore: f64,
    mtbf: f64,
    interval: f64,
    overhead: f64,
    /// How long after its blocking part a save protects.
    commit: f64,
    /// The common factor of all segments, by which each segment's own factor is multiplied.
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
    /// The time until a save that is written in the background protects.
    #[error("the time until a save protects has to be a number of seconds, zero or more, not {0}")]
    Commit(f64),
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
            commit: 0.0,
            scale: mtbf * (restore / mtbf).exp(),
        };
        Ok(Self {
            overhead: costs.segment(interval) / interval - 1.0,
            ..costs
        })
    }

    /// The same costs if saves are written in the background: the program waits only for the blocking part,
    /// which then takes `save` seconds, and a save protects from `commit` seconds after it on. No save begins
    /// before the last one protects.
    ///
    /// A failure costs `commit` seconds of work more, whenever it comes: the work done while the last save
    /// was being written is done again. That is as if each restore took longer by that time, so that the best
    /// interval stays the same, unless it is shorter than `commit`.
    ///
    /// # Errors
    /// If `commit` is negative or not finite.
    pub fn written_in_background(self, commit: f64) -> Result<Self, CostsError> {
        if !(commit >= 0.0 && commit.is_finite()) {
            return Err(CostsError::Commit(commit));
        }
        let costs = Self {
            commit,
            interval: optimal_interval(self.save, self.mtbf).max(commit),
            scale: self.mtbf * ((self.restore + commit) / self.mtbf).exp(),
            ..self
        };
        Ok(Self {
            overhead: costs.segment(costs.interval) / costs.interval - 1.0,
            ..costs
        })
    }

    /// How long after its blocking part a save protects, in seconds.
    pub fn commit(&self) -> f64 {
        self.commit
    }

    /// How long a save keeps the program waiting, in seconds.
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
    ///
    /// If saves are written in the background, it is the time from one save's protection to the next one's,
    /// as long as no save waits for the one before.
    pub fn segment(&self, compute: f64) -> f64 {
        self.uninterrupted(compute + self.save)
    }

    /// The same for the first save of a run, before which there is nothing under way.
    pub fn first_segment(&self, compute: f64) -> f64 {
        self.after_nothing(compute + self.save + self.commit)
    }

    /// The same for any later save, also if it waits until the one before protects. Work that is done again
    /// after a failure waits for nothing.
    pub fn next_segment(&self, compute: f64) -> f64 {
        let wait = (self.commit - compute).max(0.0);
        if wait == 0.0 {
            return self.segment(compute);
        }
        // The first attempt is longer by the wait; the others are longer by what is still to be written at their end.
        let again = compute + self.save;
        self.scale * (again / self.mtbf).exp() * -(-(again + wait) / self.mtbf).exp_m1()
    }

    /// The same without a save at the end, as for the last work of a run, from the protection by the last
    /// save on. Negative if that protection would come after the end.
    pub fn last_segment(&self, compute: f64) -> f64 {
        self.uninterrupted(compute - self.commit)
    }

    /// The expected time of `length` seconds of work and saves after which nothing is to be saved, in a run
    /// that has not saved.
    pub fn unsaved(&self, length: f64) -> f64 {
        self.after_nothing(length)
    }

    /// The expected time of a run of `total` seconds of work that saves each `interval` seconds (the paper,
    /// equation 4). It takes the run for a whole number of intervals, each of which ends with a save.
    pub fn run(&self, total: f64, interval: f64) -> f64 {
        total / interval * self.next_segment(interval)
    }

    /// The part by which the overhead becomes smaller if there is a fast way to save too, which takes `save`
    /// seconds and survives the part `covers` of the failures: 0.3 is three tenths. Each way then has a
    /// period of its own. Zero if it is best not to use the fast way, as when it takes nearly as long or
    /// survives little.
    pub fn saving_of_fast_level(&self, save: f64, covers: f64) -> f64 {
        self.two_levels(save, covers)
            .map_or(0.0, |two| 1.0 - two.overhead / self.overhead)
    }

    /// How such a fast way to save is best used beside this one; nothing if it is best not to use it.
    pub fn two_levels(&self, save: f64, covers: f64) -> Option<TwoLevels> {
        TwoLevels::new(self, save, covers)
    }

    /// The same for a run that can save only at the ends of its steps, which take `steps` seconds each. The
    /// result may take longer than one level does, for example if steps are longer than the periods.
    pub fn two_levels_in_steps(&self, save: f64, covers: f64, steps: &[f64]) -> Option<TwoLevelsInSteps> {
        let two = self.two_levels(save, covers)?;
        TwoLevelsInSteps::new(self, save, covers, &two, steps)
    }

    /// How long `work` seconds that are left since the last save are expected to take if they are cut in the best way.
    pub(crate) fn time_of_cut(&self, work: f64) -> f64 {
        let segments = self.segments(work);
        segments * self.segment((work - self.spared()) / segments)
    }

    /// The compute time between two saves for which the `work` seconds left since the last save take least,
    /// if nothing is saved at their end. All segments are equally long together with their saves. `None` if
    /// it is best not to save any more.
    pub(crate) fn best_cut(&self, work: f64) -> Option<f64> {
        let segments = self.segments(work);
        (segments > 1.0).then(|| (work - self.spared()) / segments)
    }

    /// Into how many segments `work` is best cut.
    fn segments(&self, work: f64) -> f64 {
        let wanted = (work - self.spared()) / self.interval;
        let fewer = wanted.floor().max(1.0);
        let more = fewer + 1.0;
        let is_fewer = if fewer >= SEGMENTS_MANY {
            wanted * wanted < fewer * more
        } else {
            let time = |segments: f64| segments * self.segment((work - self.spared()) / segments);
            time(fewer) <= time(more)
        };
        if is_fewer { fewer } else { more }
    }

    /// An interval that is no longer than that of the [`best_cut`](Self::best_cut), and quickly found. It may
    /// be zero near the end.
    pub(crate) fn shortest_cut(&self, work: f64) -> f64 {
        let fewer = ((work - self.spared()) / self.interval).floor();
        if fewer < 2.0 {
            return 0.0;
        }
        (work - self.spared()) / (fewer + 1.0)
    }

    /// The time by which the last segment may be longer than the others: it needs no save, and begins while
    /// one is being written.
    fn spared(&self) -> f64 {
        self.save + self.commit
    }

    /// The expected time until `length` seconds without a failure are over, if nothing is under way before them.
    fn after_nothing(&self, length: f64) -> f64 {
        self.mtbf * (self.restore / self.mtbf).exp() * (length / self.mtbf).exp_m1()
    }

    /// The expected time until `length` seconds without a failure are over.
    fn uninterrupted(&self, length: f64) -> f64 {
        self.scale * (length / self.mtbf).exp_m1()
    }

    /// Returns true if a second of work costs less if it is saved after `now` seconds than after `later`, or
    /// more by no more than the part `tolerance`.
    pub(crate) fn is_cheaper(&self, now: f64, later: f64, tolerance: f64) -> bool {
        let rate = |compute: f64| ((compute + self.save) / self.mtbf).exp_m1() / compute;
        rate(now) <= rate(later) * (1.0 + tolerance)
    }

    /// The time that is left of a run, if `expected` seconds are the forecast of it. `None` if the end is so
    /// far that the forecast may be wrong by as much as there is to be gained.
    pub(crate) fn near_end(&self, expected: f64) -> Option<f64> {
        (expected <= INTERVALS_FORESEEN * self.interval).then_some(expected)
    }
}

/// The number of segments from which on one more or less makes so little difference that Young's model says
/// well enough which is better.
const SEGMENTS_MANY: f64 = 8.0;

/// The number of intervals before its end from which on a run can be cut by the forecast of its rest. If
/// steps become longer or shorter, the rest is known no better further off. If steps stay as they are, this
/// many intervals share the excess nearly as well.
const INTERVALS_FORESEEN: f64 = 3.0;

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
