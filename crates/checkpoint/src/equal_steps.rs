//! How the rest of a run is best cut into segments of whole steps, if all steps take the same.

use crate::{
    costs::Costs,
    policy::{Moment, Reason},
};

/// A moment in a run of equal steps. Counts of steps are kept as floating-point numbers, since all that is done with them
/// is arithmetic with times.
pub(crate) struct EqualSteps<'costs> {
    costs: &'costs Costs,
    /// How long a step takes, in seconds.
    step: f64,
    /// How many steps were done since the last save.
    done: f64,
    /// How many are left.
    left: f64,
}

/// How a number of steps is cut.
struct Cut {
    segments: f64,
    /// How many steps the shortest segment has that ends with a save; infinite if there is none.
    shortest: f64,
    /// How long it is expected to take, in seconds.
    time: f64,
}

/// Up to how many steps in an interval it matters that a segment has a whole number of them.
const STEPS_MAX: f64 = 16.0;

/// By which part what is left may differ from a whole number of steps: rounding, nothing more.
const TOLERANCE: f64 = 1e-6;

impl<'costs> EqualSteps<'costs> {
    /// Looks whether all steps took the same and a whole number of them is left. Nothing if they are so short that it does
    /// not matter. Of steps that only resemble each other the next may be the first of a trend: for them the plain rule is
    /// better.
    pub(crate) fn of(costs: &'costs Costs, moment: &Moment) -> Option<Self> {
        let step = moment.next_step;
        let remaining = moment.remaining?;
        let left = (remaining / step).round();
        let done = moment.steps as f64;
        let is_whole = left >= 1.0 && (remaining - left * step).abs() <= TOLERANCE * remaining;
        let is_long = step * STEPS_MAX >= costs.interval();
        // What is written in the background has the plain rule.
        (moment.equal_steps && is_long && is_whole && costs.commit() == 0.0).then_some(Self {
            costs,
            step,
            done,
            left,
        })
    }

    /// Whether it is best to save now, or to wait for the next step, or to save no more.
    pub(crate) fn decide(&self) -> Reason {
        // Sooner than after half an interval it is never best: that spares the exponentials at most moments.
        if (self.done + 1.0) * self.step < 0.5 * self.costs.interval() {
            return Reason::NotYet;
        }
        let powers = Powers::of(self.costs, self.step);
        let best_cut = |steps| powers.best_cut(steps);
        // In which order the segments come does not matter: the shortest is the first.
        let all = best_cut(self.done + self.left);
        if self.done < all.shortest {
            return match all.segments > 1.0 {
                true => Reason::NotYet,
                false => Reason::EndIsNear,
            };
        }
        // Whoever could not save when it was best may be better off without.
        let is_late = self.done > all.shortest + 1.0;
        let now = || powers.segment(self.done) + best_cut(self.left).time;
        match is_late && powers.last_segment(self.done + self.left) <= now() {
            true => Reason::EndIsNear,
            false => Reason::CheaperNow,
        }
    }
}

/// The expected times of segments in a unit that spares the exponentials but for a few: [`Costs::segment`] is
/// `e^((steps * step + save) / mtbf) - 1` times what is the same for all of them.
struct Powers {
    /// `e^(step / mtbf)`.
    growth: f64,
    /// How many whole steps are in an interval, one at least.
    few: f64,
    /// `e` to the power of those steps and a save after them, divided by the mean time between failures.
    of_few: f64,
    /// The same without the save.
    of_few_unsaved: f64,
    /// How many steps could be done in the time of a save.
    spared: f64,
}

impl Powers {
    fn of(costs: &Costs, step: f64) -> Self {
        let few = (costs.interval() / step).floor().max(1.0);
        let of_few_unsaved = (few * step / costs.mtbf()).exp();
        Self {
            growth: (step / costs.mtbf()).exp(),
            few,
            of_few: of_few_unsaved * (costs.save() / costs.mtbf()).exp(),
            of_few_unsaved,
            spared: costs.save() / step,
        }
    }

    /// The best way to cut so many steps with no save at their end.
    fn best_cut(&self, steps: f64) -> Cut {
        // What a second costs is convex over the length of a segment: one of the two numbers beside the best length is
        // how many steps it has if there are very many.
        let Self { few, .. } = *self;
        let many = few + 1.0;
        let usual = match self.segment(few) * many <= self.segment(many) * few {
            true => few,
            false => many,
        };
        // The time is convex over the number of segments too.
        let fewer = ((steps - self.spared) / usual).floor().max(1.0);
        let [fewer, more] = [fewer, fewer + 1.0].map(|segments| self.cut(steps, segments));
        if fewer.time <= more.time { fewer } else { more }
    }

    /// So many steps in so many segments.
    fn cut(&self, steps: f64, segments: f64) -> Cut {
        // The last segment may be longer by what it spares, and is the first to get one of the steps that are over.
        let spared = self.spared.floor();
        let shortest = ((steps - spared) / segments).floor();
        if segments == 1.0 || shortest < 1.0 {
            return Cut {
                segments: 1.0,
                shortest: f64::INFINITY,
                time: self.last_segment(steps),
            };
        }
        let over = steps - spared - shortest * segments;
        let last = shortest + spared + over.min(1.0);
        let longer = (over - 1.0).max(0.0);
        let mut time = self.last_segment(last) + (segments - 1.0 - longer) * self.segment(shortest);
        if longer > 0.0 {
            time += longer * self.segment(shortest + 1.0);
        }
        Cut {
            segments,
            shortest,
            time,
        }
    }

    fn segment(&self, steps: f64) -> f64 {
        self.of_few * self.power(steps - self.few) - 1.0
    }

    fn last_segment(&self, steps: f64) -> f64 {
        self.of_few_unsaved * self.power(steps - self.few) - 1.0
    }

    fn power(&self, steps: f64) -> f64 {
        self.growth.powi(steps as i32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Plan, Rate};

    proptest! {
        /// Steps of equal length are saved after as nearly as can be, however few they are.
        #[test]
        fn short_runs_of_equal_steps_are_cut_best(
            save in 0.01f64..2.0, mtbf in 10.0f64..500.0, part in 0.07f64..4.0, count in 2usize..400
        ) {
            let costs = Costs::new(save, save, mtbf).unwrap();
            let steps = vec![costs.interval() * part; count];
            let best = Plan::best(&costs, &steps).expected_time(&costs, &steps);
            let rate = Plan::by(&Rate, &costs, &steps).expected_time(&costs, &steps);
            prop_assert!(rate / best - 1.0 < 1e-4, "{} more than the best", rate / best - 1.0);
        }
    }
}
