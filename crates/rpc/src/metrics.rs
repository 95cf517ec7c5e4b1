//! The counters of an engine.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_fabric::HeartbeatCounts;

use crate::{CallError, LatencyHistogram};

/// The work that an engine has done since it was made, and its work in progress; see
/// [`Engine::metrics`](crate::Engine::metrics).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The calls that were made here.
    pub calls: CallCounts,
    /// The notifications that were sent from here.
    pub notifications: NotificationCounts,
    /// The calls and notifications of others that were handled here.
    pub requests: RequestCounts,
    /// Bytes of requests and replies.
    pub message_bytes: MessageBytes,
    /// Transfers that this engine started by pulling.
    pub pulls: TransferCounts,
    /// Transfers that this engine started by pushing.
    pub pushes: TransferCounts,
    /// Peers that were lost.
    pub peers_lost: u64,
    /// How often this engine and its peers asked each other for a sign of life.
    pub heartbeats: HeartbeatCounts,
    /// Asynchronous handlers that have not ended.
    pub tasks: u64,
    /// Each procedure that was called or handled while that was counted; see
    /// [`Engine::count_procedures`](crate::Engine::count_procedures).
    pub procedures: BTreeMap<&'static str, ProcedureMetrics>,
}

/// The counters of the calls that an engine makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallCounts {
    /// Calls that were sent, each of a batch and each hedged one for itself; what was tried again counts once.
    pub sent: u64,
    /// Calls that have not ended.
    pub in_progress: u64,
    /// How calls failed. What is in none of the other fields has ended with an output.
    pub failures: FailureCounts,
    /// Calls that were tried again.
    pub retries: u64,
}

/// The counters of the notifications that an engine sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotificationCounts {
    /// Notifications that were sent.
    pub sent: u64,
    /// How notifications failed, as far as that is known here: they were refused at the target for want of room, or
    /// an input too large for a message was not pulled. What was lost with its target is not known.
    pub failures: FailureCounts,
}

/// The counters of the requests that an engine handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Calls and notifications that a handler was given.
    pub started: u64,
    /// Calls whose handlers have not answered yet.
    pub in_progress: u64,
    /// How calls failed that others made here, and notifications that were not handled.
    pub failures: FailureCounts,
    /// Replies that wait until their callers have read earlier ones.
    pub replies_waiting: u64,
}

/// Bytes of requests and replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageBytes {
    /// Those that were given to the fabric.
    pub sent: u64,
    /// Those that came.
    pub received: u64,
}

/// The counters of one procedure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcedureMetrics {
    /// How long the calls of it took that ended with an output, as the caller sees it.
    pub calls: LatencyHistogram,
    /// The calls of it that failed.
    pub call_failures: u64,
    /// How long it was handled here, until it was answered; those without an answer are not in it.
    pub requests: LatencyHistogram,
}

/// How often what was the reason of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailureCounts {
    /// The target had no room.
    pub busy: u64,
    /// Nobody waited for it any longer.
    pub cancelled: u64,
    /// The handler failed.
    pub fault: u64,
    /// One side could not read what the other sent.
    pub malformed: u64,
    /// The target died, or could not be reached.
    pub peer_died: u64,
    /// It could not even be sent.
    pub refused: u64,
    /// The deadline passed.
    pub timed_out: u64,
    /// The target does not serve it.
    pub unknown_procedure: u64,
    /// Anything else.
    pub other: u64,
}

/// Transfers of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferCounts {
    /// Those that were started, each piece of a bulk transfer for itself.
    pub started: u64,
    /// Those that failed or were cancelled, but for pieces.
    pub failed: u64,
    /// The bytes of those that have ended well.
    pub bytes: u64,
}

impl FailureCounts {
    /// Each reason by its name.
    pub fn by_reason(&self) -> [(&'static str, u64); 9] {
        [
            ("busy", self.busy),
            ("cancelled", self.cancelled),
            ("fault", self.fault),
            ("malformed", self.malformed),
            ("peer_died", self.peer_died),
            ("refused", self.refused),
            ("timed_out", self.timed_out),
            ("unknown_procedure", self.unknown_procedure),
            ("other", self.other),
        ]
    }

    /// All failures.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }

    pub(crate) fn record(&mut self, error: &CallError) {
        *match error {
            CallError::Busy { .. } => &mut self.busy,
            CallError::Fault { .. } => &mut self.fault,
            CallError::InputMalformed { .. } | CallError::OutputMalformed { .. } => &mut self.malformed,
            CallError::PeerDied { .. } => &mut self.peer_died,
            CallError::Submit { .. } | CallError::InputUnencodable { .. } | CallError::Unsent { .. } => {
                &mut self.refused
            }
            CallError::TimedOut { .. } => &mut self.timed_out,
            CallError::UnknownProcedure { .. } => &mut self.unknown_procedure,
            _ => &mut self.other,
        } += 1;
    }
}

impl Metrics {
    pub(crate) fn record_call(&mut self, procedure: &'static str, result: Result<Duration, ()>) {
        let procedure = self.procedures.entry(procedure).or_default();
        match result {
            Ok(time) => procedure.calls.record(time),
            Err(()) => procedure.call_failures += 1,
        }
    }

    pub(crate) fn record_request(&mut self, procedure: &'static str, time: Duration) {
        self.procedures
            .entry(procedure)
            .or_default()
            .requests
            .record(time);
    }
}
