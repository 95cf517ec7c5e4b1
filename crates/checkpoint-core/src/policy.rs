//! At the end of which time step to save.

use crate::{
    costs::Costs,
    equal_steps::{EqualSteps, decide_near_end},
};

/// The end of a time step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// How long was computed since the end of the last save or restore, in seconds.
    pub elapsed: f64,
    /// How long the next step is expected to take, in seconds: as long as the last one, unless more is known.
    pub next_step: f64,
    /// How many steps there were since the last save or restore.
    pub steps: u64,
    /// How long is still to be computed until the end of the run, in seconds, if somebody knows. The work at the end
    /// needs no save, and what is before it is best cut into equal parts: for a run of ten intervals that can make
    /// one percent. Better nothing than a guess over many intervals: [`Plan::by`](crate::Plan::by) and
    /// [`Advisor`](crate::Advisor) tell what they foresee only where the end is near.
    pub remaining: Option<f64>,
    /// True if all steps so far took as long as the last one, but for rounding. Then the rest is cut into
    /// whole steps.
    pub equal_steps: bool,
}

/// The decision at the end of a time step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// True if the program is to save now.
    pub save: bool,
    /// Why.
    pub reason: Reason,
    /// The best compute time between two saves if one could save at any moment, in seconds.
    pub interval: f64,
    /// By which part of its compute time the run is expected to become longer ([`Costs::overhead`]).
    pub overhead: f64,
}

impl Decision {
    /// The decision that follows from a reason.
    pub(crate) fn new(costs: &Costs, reason: Reason) -> Self {
        let save = match reason {
            Reason::NotYet
            | Reason::EndIsNear
            | Reason::NoTimeLeft
            | Reason::LastSaveFailed
            | Reason::LastSaveUnderWay => false,
            Reason::IntervalOver
            | Reason::NextIsTooLate
            | Reason::CheaperNow
            | Reason::StepsDone
            | Reason::EndIsAnnounced
            | Reason::LimitIsNear
            | Reason::SaveTimeUnknown => true,
        };
        Self {
            save,
            reason,
            interval: costs.interval(),
            overhead: costs.overhead(),
        }
    }
}

/// Why to save or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// To wait for the next step costs less.
    NotYet,
    /// As much was computed as between two saves there should be.
    IntervalOver,
    /// After the next step it would be too late.
    NextIsTooLate,
    /// Work that is saved now costs less than work that is saved one step later, or hardly more.
    CheaperNow,
    /// So many steps are done.
    StepsDone,
    /// The run is over before a save would be of use.
    EndIsNear,
    /// The job will be ended, and there is time for a save.
    EndIsAnnounced,
    /// The job's time is nearly over: this is the last moment to begin a save.
    LimitIsNear,
    /// A save would not be done before the job is ended.
    NoTimeLeft,
    /// The last save could not be made, and it is too early to try again.
    LastSaveFailed,
    /// The last save is still being written in the background.
    LastSaveUnderWay,
    /// Nobody knows how long a save takes, and this one will tell.
    SaveTimeUnknown,
}

/// When to save. Decisions allocate nothing and read no clock.
pub trait Policy {
    /// Decides if the program is to save at the end of a time step.
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision;
}

/// The default: saves when a second of work costs no more if it is saved now than if it is saved one step later.
///
/// It is best for steps of equal length, where the rule of the paper, which always saves before the interval
/// is over, can waste 5 % of a run. If it makes next to no difference and nobody knows the end, it saves when
/// the paper's rule does: which of the two comes to the end at a better moment would be chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate;

/// The paper's rule (figure 3): saves when the interval is over or would be after the next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paper;

/// Saves at the end of the step that is nearest to the end of the interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nearest;

/// Saves after so many steps, whatever they cost; what programs offer that know nothing of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedSteps(pub u64);

/// Saves after so many seconds of computing, at the end of the step in which they are over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedSeconds(pub f64);

impl Policy for Rate {
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
        let Moment {
            elapsed,
            next_step,
            remaining,
            ..
        } = *moment;
        // The last save is still being written, or this one would not protect before the end.
        if elapsed < costs.commit() {
            return Decision::new(costs, Reason::LastSaveUnderWay);
        }
        if remaining.is_some_and(|remaining| costs.commit() > 0.0 && remaining <= costs.commit()) {
            return Decision::new(costs, Reason::EndIsNear);
        }
        let least = match remaining {
            None => costs.interval(),
            Some(remaining) => costs.shortest_cut(elapsed + remaining),
        };
        if let Some(steps) = EqualSteps::of(costs, moment) {
            return Decision::new(costs, steps.decide());
        }
        if let Some(reason) = decide_near_end(costs, moment) {
            return Decision::new(costs, reason);
        }
        // It becomes cheaper up to the interval: that spares the exponentials at most moments.
        if elapsed + next_step < least {
            return Decision::new(costs, Reason::NotYet);
        }
        let scale = match remaining {
            None => 1.0,
            Some(remaining) => match costs.best_cut(elapsed + remaining) {
                Some(interval) => costs.interval() / interval,
                None => return Decision::new(costs, Reason::EndIsNear),
            },
        };
        let [now, later] = [elapsed, elapsed + next_step].map(|time| time * scale);
        // If nobody knows the end, the paper's rule saves as soon as it comes to here.
        let tolerance = match remaining.is_none() && !moment.equal_steps {
            true => NEXT_TO_NOTHING,
            false => 0.0,
        };
        // A next step of no length would make both rates equal.
        let reason = if now == later {
            reached(now, costs.interval())
        } else if costs.is_cheaper(now, later, tolerance) {
            Reason::CheaperNow
        } else {
            Reason::NotYet
        };
        // If more is left than was foreseen, the moment of the last save may have passed unseen. Where two intervals
        // are left that cannot be: a save is worth what it costs from one on.
        let missed = |remaining| {
            (elapsed < costs.interval() / 2.0 || remaining < 2.0 * (costs.interval() + costs.save()))
                && costs.segment(elapsed) + costs.time_of_cut(remaining)
                    > costs.last_segment(elapsed + remaining)
        };
        if reason != Reason::NotYet && remaining.is_some_and(missed) {
            return Decision::new(costs, Reason::EndIsNear);
        }
        Decision::new(costs, reason)
    }
}

/// By which part of a run the default may become longer to save when the paper's rule does.
const NEXT_TO_NOTHING: f64 = 1e-4;

impl Policy for Paper {
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
        let reason = match reached(moment.elapsed, costs.interval()) {
            Reason::NotYet if moment.elapsed + moment.next_step > costs.interval() => Reason::NextIsTooLate,
            reason => reason,
        };
        Decision::new(costs, reason)
    }
}

impl Policy for Nearest {
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
        let reason = match reached(moment.elapsed, costs.interval()) {
            Reason::NotYet if moment.elapsed + moment.next_step / 2.0 >= costs.interval() => {
                Reason::NextIsTooLate
            }
            reason => reason,
        };
        Decision::new(costs, reason)
    }
}

impl Policy for FixedSteps {
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
        let reason = match moment.steps >= self.0 {
            true => Reason::StepsDone,
            false => Reason::NotYet,
        };
        Decision::new(costs, reason)
    }
}

impl Policy for FixedSeconds {
    fn decide(&self, costs: &Costs, moment: &Moment) -> Decision {
        Decision::new(costs, reached(moment.elapsed, self.0))
    }
}

fn reached(elapsed: f64, interval: f64) -> Reason {
    if elapsed >= interval {
        Reason::IntervalOver
    } else {
        Reason::NotYet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saves(policy: &impl Policy, elapsed: f64, next_step: f64) -> bool {
        let costs = Costs::new(0.6, 0.6, 25.0).unwrap();
        let moment = Moment {
            elapsed,
            next_step,
            steps: 3,
            remaining: None,
            equal_steps: false,
        };
        policy.decide(&costs, &moment).save
    }

    /// Each rule around the interval of 5.085 s, with steps of a second.
    #[test]
    fn rules_differ_in_how_they_round() {
        assert!(!saves(&Paper, 4.0, 1.0) && saves(&Paper, 4.2, 1.0));
        assert!(!saves(&Nearest, 4.5, 1.0) && saves(&Nearest, 4.6, 1.0));
        assert!(!saves(&Rate, 4.5, 1.0) && saves(&Rate, 4.65, 1.0));
        assert!(!saves(&FixedSeconds(6.0), 5.9, 1.0) && saves(&FixedSeconds(6.0), 6.0, 1.0));
        assert!(!saves(&FixedSteps(4), 100.0, 1.0) && saves(&FixedSteps(3), 0.1, 1.0));
    }

    /// A run whose end is known is saved in equal parts, and not just before the end.
    #[test]
    fn the_end_of_the_run_needs_no_save() {
        let costs = Costs::new(0.6, 0.6, 25.0).unwrap();
        let at = |elapsed, remaining| {
            let moment = Moment {
                elapsed,
                next_step: 0.1,
                steps: 30,
                remaining: Some(remaining),
                equal_steps: false,
            };
            Rate.decide(&costs, &moment).reason
        };
        assert_eq!(at(5.2, 1.0), Reason::EndIsNear);
        assert_eq!(at(4.0, 1e9), Reason::NotYet);
        assert_eq!(at(5.2, 1e9), Reason::CheaperNow);
        // Nine seconds are best cut into two parts, of which the last is longer by what it need not save.
        assert_eq!(at(4.0, 5.0), Reason::NotYet);
        assert_eq!(at(4.2, 4.8), Reason::CheaperNow);
    }

    /// Just before the interval is over the default saves with the paper's rule, unless somebody knows better.
    #[test]
    fn what_makes_no_difference_is_left_to_the_papers_rule() {
        let costs = Costs::new(0.6, 0.6, 25.0).unwrap();
        let moment = Moment {
            elapsed: 5.0,
            next_step: 0.1,
            steps: 50,
            remaining: None,
            equal_steps: false,
        };
        assert!(Paper.decide(&costs, &moment).save && Rate.decide(&costs, &moment).save);
        for known in [
            Moment {
                remaining: Some(1e9),
                ..moment
            },
            Moment {
                equal_steps: true,
                ..moment
            },
        ] {
            assert!(!Rate.decide(&costs, &known).save, "{known:?}");
        }
        // With longer steps it does make a difference.
        assert!(saves(&Paper, 4.5, 1.0) && !saves(&Rate, 4.5, 1.0));
    }

    /// Nothing computed is nothing to save, and without a forecast the interval decides.
    #[test]
    fn the_rate_rule_has_no_odd_corners() {
        assert!(!saves(&Rate, 0.0, 1.0) && !saves(&Rate, 0.0, 0.0) && !saves(&Rate, 5.0, 0.0));
        assert!(saves(&Rate, 5.1, 0.0) && saves(&Rate, 1e9, 1e9));
    }
}
