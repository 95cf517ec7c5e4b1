//! Failures that come again as they were.

use std::collections::VecDeque;

use ropewalk_names::Rank;

use super::Attempt;
use crate::verdict::{Ending, FailureKind, Repeated, Verdict};

/// How a rank failed, if a program can do that to itself again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strike {
    rank: Rank,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Code(i32),
    Signal(i32),
}

/// Compares an attempt with those before it, of which each has the step that it came to.
pub(super) fn repeated(
    past: &VecDeque<(Attempt, Option<u64>)>,
    verdict: &Verdict,
    step: Option<u64>,
) -> Option<Repeated> {
    let (strike, step) = (strike(verdict)?, step?);
    let is_same = |(attempt, reached): &&(Attempt, Option<u64>)| {
        *reached == Some(step) && self::strike(&attempt.verdict) == Some(strike)
    };
    let before = past.iter().filter(is_same).count() as u32;
    (before > 0).then_some(Repeated {
        step,
        times: before + 1,
    })
}

fn strike(verdict: &Verdict) -> Option<Strike> {
    if verdict.ending != Ending::Failed {
        return None;
    }
    let failure = verdict.failures.first()?;
    let cause = match failure.kind {
        FailureKind::Aborted { exit_code, .. } => Cause::Code(exit_code),
        // As a shell tells of what it ran.
        FailureKind::Exited(code) if SIGNALLED.contains(&code) => Cause::Signal(code - SIGNALLED.start()),
        FailureKind::Exited(code) => Cause::Code(code),
        FailureKind::Unfinished => Cause::Code(0),
        FailureKind::Signalled(signal) => Cause::Signal(signal),
        FailureKind::NotStarted { .. } | FailureKind::OutOfMemory(_) | FailureKind::Stopped { .. } => {
            return None;
        }
    };
    match cause {
        // Others come from outside.
        Cause::Signal(signal) if !OWN_FAULTS.contains(&signal) => None,
        cause => Some(Strike {
            rank: failure.rank,
            cause,
        }),
    }
}

/// SIGILL, SIGABRT, SIGBUS, SIGFPE and SIGSEGV: what a process brings upon itself.
const OWN_FAULTS: [i32; 5] = [4, 6, 7, 8, 11];

/// The exit codes by which shells tell of a signal: 128 more than its number, up to the last real-time signal.
const SIGNALLED: std::ops::RangeInclusive<i32> = 128..=192;
