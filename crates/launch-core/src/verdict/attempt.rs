//! The attempts of a job that was started again.

use core::time::Duration;

use super::Verdict;

/// One of the attempts of a job that is started again when it fails, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began, since the begin of the first.
    pub began: Duration,
    /// How long it lasted.
    pub lasted: Duration,
    /// How it ended. It has no attempts of its own.
    pub verdict: Verdict,
}

/// The same failure as in attempts before: a fault of the program or its input, as it seems, and not of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// At which step.
    pub step: u64,
    /// How many attempts ended so, this one included.
    pub times: u32,
}
