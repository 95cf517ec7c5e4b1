//! Counts of the work of an engine.

/// How much an engine has in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Calls, notifications and transfers that it has begun and that have not ended.
    pub operations: usize,
    /// Calls that wait for their next attempt.
    pub retries: usize,
    /// Calls that handlers here have taken and not answered.
    pub deferred: usize,
    /// Requests that wait for an input to be pulled.
    pub arrivals: usize,
    /// Replies that wait for room.
    pub unsent: usize,
    /// Inputs and outputs that are exposed for their receivers to pull.
    pub overflow_regions: usize,
    /// Transfers of ranges of bulk handles, chunks of pipelines among them.
    pub bulk_transfers: usize,
    /// Pipelined transfers.
    pub pipelines: usize,
}
