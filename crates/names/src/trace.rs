//! The events by which a rank tells how far its work is.

use serde::{Deserialize, Serialize};

use crate::counters::ReductionCounters;

/// Something that happened in a rank, for progress bars and time lines. Times are nanoseconds of the host's
/// `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TraceEvent {
    /// The counters of the reductions of the rank. They replace those that it told before.
    Counters(ReductionCounters),
    /// How far a part of the work is.
    Progress(Progress),
    /// Something took from `start_ns` to `end_ns`.
    Span {
        /// The kind of work.
        kind: SpanKind,
        /// Which piece of it.
        label: String,
        /// When it began.
        start_ns: u64,
        /// When it ended.
        end_ns: u64,
    },
    /// Something happened at one moment.
    Mark {
        /// The event in words.
        label: String,
        /// When.
        at_ns: u64,
    },
}

/// How far a part of the work is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Which part, as a person would call it.
    pub label: String,
    /// How much of it is done.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

/// Kinds of work on a time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpanKind {
    /// The program's own work.
    Compute,
    /// Reading or writing files.
    File,
    /// Combining two partial results.
    Merge,
    /// Fetching a partial result from where it is.
    Pull,
    /// A collective call, from its begin until its end on the rank.
    Call,
}
