//! How the rest of a run is best cut into segments of whole steps, if all steps take the same.

use crate::{
    costs::Costs,
    policy::{Moment, Reason},
};

/// A moment in a run of equal steps. Counts of steps are floating-point numbers, since they are only used in
/// arithmetic with times.
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

/// The end is near if it is nearer than `INTERVALS_MAX` intervals. Steps are long if an interval has no more
/// than `FEW_STEPS` of them.
const INTERVALS_MAX: f64 = 10.0;
const FEW_STEPS: f64 = 8.0;

/// By which part the next step may differ from the mean of those since the last save.
const LIKENESS: f64 = 0.25;

/// By which part what is left may differ from a whole number of steps: rounding, nothing more.
const TOLERANCE: f64 = 1e-6;

impl<'costs> EqualSteps<'costs> {
    /// The moment, if all steps took the same and a whole number of them is left. `None` if they are so short
    /// that it does not matter. If steps only resemble each other, the next may be the first of a trend: the
    /// plain rule is better for them.
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

    /// Decides if it is best to save now, to wait for the next step, or to save no more.
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

/// The best decision near the end of a run of long steps that resemble each other, if the steps to come take
/// as long as the last. If an interval has few steps, the number of whole steps in the rest says more than
/// its time. `None` if that is not so: far from the end the plain rule is as good, and the next step may be
/// the first of a trend.
pub(crate) fn decide_near_end(costs: &Costs, moment: &Moment) -> Option<Reason> {
    let Moment {
        elapsed, next_step, ..
    } = *moment;
    let remaining = moment.remaining?;
    let interval = costs.interval();
    let is_near = elapsed + remaining < INTERVALS_MAX * interval && next_step * FEW_STEPS >= interval;
    let mean = elapsed / moment.steps as f64;
    let are_alike = (next_step - mean).abs() <= LIKENESS * next_step;
    if !is_near || !are_alike || costs.commit() > 0.0 {
        return None;
    }
    if elapsed + next_step < 0.5 * interval {
        return Some(Reason::NotYet);
    }
    let powers = Powers::of(costs, next_step);
    let left = (remaining / next_step).round().max(1.0);
    let unsaved = (elapsed / costs.mtbf()).exp();
    let saved = unsaved * powers.of_save;
    let now = saved - 1.0 + powers.best_cut(left).time;
    if unsaved * powers.power(left) - 1.0 < now {
        return Some(Reason::EndIsNear);
    }
    // After two steps it is never cheaper if it was not after one.
    let is_cheaper_later = left > 1.0 && saved * powers.growth - 1.0 + powers.best_cut(left - 1.0).time < now;
    Some(match is_cheaper_later {
        true => Reason::NotYet,
        false => Reason::CheaperNow,
    })
}

/// The expected times of segments in a unit that spares the exponentials but for a few: [`Costs::segment`] is
/// `e^((steps * step + save) / mtbf) - 1` times what is the same for all of them.
struct Powers {
    /// `e^(step / mtbf)`.
    growth: f64,
    /// `e^(save / mtbf)`.
    of_save: f64,
    /// How many whole steps a segment has if there are very many.
    usual: f64,
    /// How many steps could be done in the time of a save, how many whole ones, and `e` to the power of the
    /// time of the whole ones divided by the mean time between failures.
    spared: f64,
    whole: f64,
    of_whole: f64,
}

impl Powers {
    fn of(costs: &Costs, step: f64) -> Self {
        let growth = (step / costs.mtbf()).exp();
        let of_save = (costs.save() / costs.mtbf()).exp();
        let few = (costs.interval() / step).floor().max(1.0);
        let spared = costs.save() / step;
        let whole = spared.floor();
        let mut powers = Self {
            growth,
            of_save,
            usual: few,
            spared,
            whole,
            of_whole: if whole == 0.0 {
                1.0
            } else {
                growth.powi(whole as i32)
            },
        };
        // What a second costs is convex over the length of a segment: one of the two numbers beside the best length is
        // the usual one.
        let many = few + 1.0;
        let of_few = powers.power(few) * of_save;
        if (of_few - 1.0) * many > (of_few * growth - 1.0) * few {
            powers.usual = many;
        }
        powers
    }

    /// The best way to cut so many steps with no save at their end.
    fn best_cut(&self, steps: f64) -> Cut {
        // The time is convex over the number of segments.
        let fewer = ((steps - self.spared) / self.usual).floor().max(1.0);
        let [fewer, more] = [fewer, fewer + 1.0].map(|segments| self.cut(steps, segments));
        if fewer.time <= more.time { fewer } else { more }
    }

    /// So many steps in so many segments.
    fn cut(&self, steps: f64, segments: f64) -> Cut {
        // The last segment may be longer by what it spares, and is the first to get one of the steps that are over.
        let shortest = ((steps - self.whole) / segments).floor();
        if segments == 1.0 || shortest < 1.0 {
            return Cut {
                segments: 1.0,
                shortest: f64::INFINITY,
                time: self.last_segment(steps),
            };
        }
        let over = steps - self.whole - shortest * segments;
        let longer = (over - 1.0).max(0.0);
        let of_shortest = self.power(shortest);
        let of_last = of_shortest * self.of_whole * if over >= 1.0 { self.growth } else { 1.0 };
        let segment = of_shortest * self.of_save;
        let time = of_last - 1.0
            + (segments - 1.0 - longer) * (segment - 1.0)
            + longer * (segment * self.growth - 1.0);
        Cut {
            segments,
            shortest,
            time,
        }
    }

    fn segment(&self, steps: f64) -> f64 {
        self.of_save * self.power(steps) - 1.0
    }

    fn last_segment(&self, steps: f64) -> f64 {
        self.power(steps) - 1.0
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
