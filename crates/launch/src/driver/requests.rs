//! The wishes of whoever takes a job's events, for the launcher's thread.

use ropewalk_names::Rank;

/// How many signals may wait to be sent.
pub(super) const REQUESTS_MAX: usize = 1024;

/// A signal to be sent.
#[derive(Debug)]
pub(super) enum Request {
    Interrupt(i32),
    Signal(Rank, i32),
}

/// How much of the output of an attempt was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) attempt: u32,
    pub(super) bytes: u64,
}
