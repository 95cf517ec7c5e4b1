//! Starting a job again that failed.
//!
//! With [`OnFailure::Restart`](crate::OnFailure::Restart) a launcher runs a job in *attempts*. Each
//! is a whole job, with its own number, key, agents and processes: nothing of an attempt is left when the next begins,
//! and ranks find the number of theirs, from 1, in [`ATTEMPT_VARIABLE`]. Between two attempts lies a pause that doubles
//! with each attempt that came to nothing. The launcher gives up after [`RestartPolicy::restarts_max`] restarts, after
//! [`RestartPolicy::in_vain_max`] attempts in a row that came to nothing (a crash loop), and at once where
//! another attempt cannot help: the job was interrupted, its time was over, or its program is not there.
//!
//! To restore what a failed attempt saved, implement [`BetweenAttempts`] and start the job with the
//! launcher's `start_with`. The hook is asked before each attempt, the first too: it is told what became of
//! the attempt before ([`Attempt`]: who failed, when, after how long), may change the [`JobSpec`] of the
//! coming one (its environment, its command, its hosts), and may refuse it with a reason that the outcome
//! then tells. It also says whether an attempt came to something: it reached a higher step than any before
//! it, which ends a crash loop. How long an attempt lasted says nothing of that. A rank that fails again in
//! the same way at the same step is [`Repeated`] in the verdict. The hook runs in the launcher's thread,
//! while nothing of the job runs; output of earlier attempts and signals wait for it.

mod attempt;
mod repeated;

use core::time::Duration;
use std::{collections::VecDeque, error::Error};

use crate::{
    job::JobSpec,
    verdict::{Ending, FailureKind, Verdict},
};

pub use crate::{job::RestartPolicy, verdict::Repeated};
pub use attempt::Attempt;

/// The variable in which ranks find the number of their attempt, from 1.
pub const ATTEMPT_VARIABLE: &str = "ROPEWALK_ATTEMPT";

/// How far an attempt came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It reached a higher step than any attempt before it, so that failing again is no crash loop.
    pub came_to_something: bool,
    /// The last step that it reached, if that is known.
    pub step: Option<u64>,
}

/// The reason for which there is to be no such attempt. Its text and those of its causes end the sentence "the job was
/// not started again: ".
pub type Refusal = Box<dyn Error + Send + Sync>;

/// A hook that runs between the attempts of a job; see the [module](self).
pub trait BetweenAttempts: Send {
    /// Prepares attempt `number`, from 1. `last` is the one before; `spec` is what was asked for, with the variable
    /// [`ATTEMPT_VARIABLE`], and not what the attempt before was changed to.
    ///
    /// # Errors
    /// If there is to be no such attempt.
    fn prepare(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> Result<(), Refusal>;

    /// How far an attempt came. Asked once for each that failed.
    fn progress(&mut self, attempt: &Attempt) -> Progress {
        let _ = attempt;
        Progress::default()
    }
}

/// Attempts are started as the first was.
impl BetweenAttempts for () {
    fn prepare(&mut self, _number: u32, _last: Option<&Attempt>, _spec: &mut JobSpec) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Decides after each attempt whether there is another.
#[derive(Clone, Debug)]
pub struct Restarts {
    policy: RestartPolicy,
    restarts: u32,
    /// How many attempts in a row came to nothing.
    in_vain: u32,
    /// The last attempts, and the step that each reached.
    past: VecDeque<(Attempt, Option<u64>)>,
}

/// The decision about another attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another, after a pause.
    Again {
        /// The pause before it.
        pause: Duration,
    },
    /// None, for the reason that it ended for.
    Over,
    /// None, although it could have been: why.
    GiveUp(String),
}

impl Restarts {
    /// How many attempts are remembered for the outcome: the last ones.
    pub(crate) const PAST_MAX: usize = 100;

    /// The state before the first attempt.
    pub fn new(policy: RestartPolicy) -> Self {
        Self {
            policy,
            restarts: 0,
            in_vain: 0,
            past: VecDeque::new(),
        }
    }

    /// Compares an attempt that came to a step with those before it.
    pub fn repeated(&self, verdict: &Verdict, step: Option<u64>) -> Option<Repeated> {
        repeated::repeated(&self.past, verdict, step)
    }

    /// An attempt ended; it came to something or not.
    pub fn handle_ended(&mut self, attempt: &Attempt, came_to_something: bool) -> Next {
        if !is_worth_another(&attempt.verdict) {
            return Next::Over;
        }
        self.in_vain = match came_to_something {
            true => 0,
            false => self.in_vain.saturating_add(1),
        };
        let RestartPolicy {
            restarts_max,
            pause,
            pause_max,
            in_vain_max,
        } = self.policy;
        if restarts_max.is_some_and(|most| self.restarts >= most) {
            let times = if self.restarts == 1 { "time" } else { "times" };
            return Next::GiveUp(format!("it was started again {} {times} already", self.restarts));
        }
        if self.in_vain >= in_vain_max {
            let attempts = if self.in_vain == 1 { "attempt" } else { "attempts" };
            return Next::GiveUp(format!(
                "{} {attempts} in a row reached no step that was not reached before",
                self.in_vain
            ));
        }
        self.restarts += 1;
        // The first failure is not yet one too many.
        let doublings = self.in_vain.saturating_sub(1).min(31);
        let pause = pause.saturating_mul(1 << doublings).min(pause_max);
        Next::Again { pause }
    }

    /// Keeps an attempt that was followed by another for the outcome.
    pub fn remember(&mut self, attempt: Attempt, step: Option<u64>) {
        if self.past.len() == Self::PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back((attempt, step));
    }

    /// The last attempt is followed by none after all.
    pub fn forget_last(&mut self) -> Option<Attempt> {
        self.past.pop_back().map(|(attempt, _)| attempt)
    }

    /// The last attempt that was followed by another.
    pub fn last(&self) -> Option<&Attempt> {
        self.past.back().map(|(attempt, _)| attempt)
    }

    /// The attempts before the last.
    pub fn into_past(self) -> Vec<Attempt> {
        self.past.into_iter().map(|(attempt, _)| attempt).collect()
    }
}

/// Returns true if a job that ended like this could end otherwise.
fn is_worth_another(verdict: &Verdict) -> bool {
    // A program that is not there now will not be there the next time.
    let is_hopeless = |kind: &FailureKind| {
        matches!(
            kind,
            FailureKind::NotStarted {
                exit_code: 126 | 127,
                ..
            }
        )
    };
    match verdict.ending {
        Ending::Completed | Ending::Interrupted(_) | Ending::TimedOut(_) | Ending::AllocationOver => false,
        _ => !verdict.failures.iter().any(|failure| is_hopeless(&failure.kind)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropewalk_names::Rank;

    use super::*;
    use crate::verdict::{Failure, MemoryShortage};

    const SECOND: Duration = Duration::from_secs(1);

    fn attempt(number: u32, ending: Ending, kind: FailureKind) -> Attempt {
        let failure = Failure {
            rank: Rank(0),
            spawned: None,
            host: "vm".to_owned(),
            pid: None,
            kind,
            stage: None,
            after: SECOND,
        };
        Attempt {
            number,
            began: SECOND * number,
            lasted: SECOND,
            verdict: Verdict {
                ending,
                failures: vec![failure],
                ..Verdict::new(1)
            },
        }
    }

    fn killed(number: u32) -> Attempt {
        attempt(number, Ending::Failed, FailureKind::Signalled(9))
    }

    /// Pauses double while attempts come to nothing, and begin again after one that came to something.
    #[test]
    fn pauses_double_until_something_comes_of_it() {
        let mut restarts = Restarts::new(RestartPolicy {
            pause_max: 3 * SECOND,
            ..RestartPolicy::default()
        });
        let expected = [
            (false, 1),
            (false, 2),
            (false, 3),
            (true, 1),
            (false, 1),
            (false, 2),
        ];
        for (number, (came_to_something, seconds)) in (1..).zip(expected) {
            let next = restarts.handle_ended(&killed(number), came_to_something);
            let pause = seconds * SECOND;
            assert_eq!(next, Next::Again { pause }, "attempt {number}");
        }
    }

    /// A crash loop ends, and so does a job that used up its restarts; both say so.
    #[test]
    fn it_does_not_go_on_for_ever() {
        let mut restarts = Restarts::new(RestartPolicy::default());
        let ends: Vec<_> = (1..=5)
            .map(|number| restarts.handle_ended(&killed(number), false))
            .collect();
        assert!(ends[..4].iter().all(|next| matches!(next, Next::Again { .. })));
        assert_eq!(
            ends[4],
            Next::GiveUp("5 attempts in a row reached no step that was not reached before".to_owned())
        );
        let mut restarts = Restarts::new(RestartPolicy::at_most(1));
        assert!(matches!(
            restarts.handle_ended(&killed(1), true),
            Next::Again { .. }
        ));
        assert_eq!(
            restarts.handle_ended(&killed(2), true),
            Next::GiveUp("it was started again 1 time already".to_owned())
        );
    }

    /// A rank that fails again in the same way at the same step is seen to; nothing is that comes from outside, strikes
    /// another rank, or strikes elsewhere.
    #[test]
    fn what_comes_again_is_seen() {
        let segmentation = FailureKind::Signalled(11);
        let aborted = FailureKind::Aborted {
            exit_code: 3,
            message: String::new(),
        };
        let of = |kind: &FailureKind| attempt(1, Ending::Failed, kind.clone());
        let repeated = |first: (&FailureKind, Option<u64>), second: (&FailureKind, Option<u64>)| {
            let mut restarts = Restarts::new(RestartPolicy::default());
            restarts.remember(of(first.0), first.1);
            restarts.repeated(&of(second.0).verdict, second.1).is_some()
        };
        for (kind, is_own) in [
            (segmentation.clone(), true),
            (FailureKind::Exited(1), true),
            (FailureKind::Exited(139), true),
            (FailureKind::Unfinished, true),
            (aborted, true),
            (FailureKind::Signalled(9), false),
            (FailureKind::Signalled(15), false),
            (FailureKind::Exited(137), false),
            (FailureKind::OutOfMemory(MemoryShortage::Host), false),
        ] {
            assert_eq!(repeated((&kind, Some(30)), (&kind, Some(30))), is_own, "{kind:?}");
            assert!(!repeated((&kind, Some(30)), (&kind, Some(31))), "{kind:?}");
            assert!(!repeated((&kind, None), (&kind, None)), "{kind:?}");
        }
        let other = FailureKind::Exited(2);
        assert!(!repeated((&FailureKind::Exited(1), Some(3)), (&other, Some(3))));

        let mut restarts = Restarts::new(RestartPolicy::default());
        let lost = Ending::AgentLost {
            host: "vm".to_owned(),
            how: "was lost".to_owned(),
            more: Vec::new(),
            continued: false,
        };
        restarts.remember(attempt(1, lost, segmentation.clone()), Some(3));
        let mut elsewhere = of(&segmentation);
        elsewhere.verdict.failures[0].rank = Rank(1);
        restarts.remember(elsewhere, Some(3));
        let again = of(&segmentation);
        assert_eq!(restarts.repeated(&again.verdict, Some(3)), None);
        for times in 2..5 {
            restarts.remember(again.clone(), Some(3));
            let found = restarts.repeated(&again.verdict, Some(3));
            assert_eq!(found, Some(Repeated { step: 3, times }));
        }
    }

    /// A job is not tried again if another attempt cannot change its end.
    #[test]
    fn what_is_hopeless_is_not_repeated() {
        let reason = "no".to_owned();
        let missing = |exit_code| FailureKind::NotStarted {
            exit_code,
            reason: reason.clone(),
        };
        let killed = FailureKind::Signalled(9);
        for (ending, kind, is_repeated) in [
            (Ending::Failed, killed.clone(), true),
            (Ending::Failed, missing(125), true),
            (Ending::Failed, missing(127), false),
            (Ending::Failed, missing(126), false),
            (Ending::Interrupted(2), killed.clone(), false),
            (Ending::TimedOut(SECOND), killed.clone(), false),
            (Ending::Completed, killed, false),
        ] {
            let mut restarts = Restarts::new(RestartPolicy::default());
            let next = restarts.handle_ended(&attempt(1, ending.clone(), kind.clone()), false);
            assert_eq!(next != Next::Over, is_repeated, "{ending:?} {kind:?}");
        }
    }

    proptest! {
        /// Never more restarts than allowed, never more attempts in vain in a row, and no pause beyond the longest.
        #[test]
        fn limits_are_kept(
            most in proptest::option::of(0u32..6),
            in_vain_max in 1u32..6,
            outcomes in proptest::collection::vec(any::<bool>(), 0..40),
        ) {
            let policy = RestartPolicy { restarts_max: most, in_vain_max, ..RestartPolicy::default() };
            let mut restarts = Restarts::new(policy);
            let (mut count, mut in_vain) = (0, 0);
            for (number, outcome) in (1..).zip(outcomes) {
                in_vain = if outcome { 0 } else { in_vain + 1 };
                match restarts.handle_ended(&killed(number), outcome) {
                    Next::Again { pause } => {
                        count += 1;
                        prop_assert!(pause <= policy.pause_max && pause >= policy.pause);
                        prop_assert!(most.is_none_or(|most| count <= most) && in_vain < in_vain_max);
                    }
                    Next::GiveUp(_) => {
                        prop_assert!(most == Some(count) || in_vain == in_vain_max);
                        break;
                    }
                    Next::Over => prop_assert!(false, "a killed rank is worth another attempt"),
                }
                restarts.remember(killed(number), None);
            }
            prop_assert_eq!(restarts.into_past().len(), count as usize);
        }
    }
}
