//! One attempt of a job that is started again when it fails.

use core::time::Duration;

use crate::verdict::Verdict;

/// An attempt, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began, since the begin of the first.
    pub began: Duration,
    /// How long it lasted.
    pub lasted: Duration,
    /// How it ended.
    pub verdict: Verdict,
}
