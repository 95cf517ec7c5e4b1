//! The options of an engine and of a call.

use std::time::Duration;

/// The maxima of one engine. What would exceed one is refused with an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Calls that were handed to a handler here and are not answered yet; above it callers are told
    /// [`BusyReason::Calls`](crate::BusyReason::Calls).
    pub calls_max: usize,
    /// As `calls_max`, of one peer; above it the peer is told
    /// [`BusyReason::CallsOfPeer`](crate::BusyReason::CallsOfPeer).
    pub calls_per_peer_max: usize,
    /// The largest input accepted here, and the largest output accepted from others, in bytes. What is larger
    /// than [`eager_size_max`](Self::eager_size_max) does not travel in a message: its receiver pulls it.
    pub overflow_size_max: u64,
    /// Bytes of inputs being pulled or waiting to be handled, and as many of outputs waiting to be pulled.
    /// Above it callers are told [`BusyReason::Inputs`](crate::BusyReason::Inputs) or
    /// [`BusyReason::Outputs`](crate::BusyReason::Outputs).
    pub overflow_bytes_max: u64,
    /// How long the target of a notification has to pull an input that is too large for a message.
    pub overflow_timeout: Duration,
    /// Requests that wait for one before them of the same peer, whose input is still being pulled.
    pub arrivals_max: usize,
    /// The largest input or output, in bytes, that travels in a message.
    pub eager_size_max: usize,
    /// Calls at most once whose end is remembered, in case that they are made again; above it callers are told
    /// [`BusyReason::Executed`](crate::BusyReason::Executed).
    pub executed_max: usize,
    /// Bytes of the replies to these calls; above it the oldest are forgotten, and whoever asks for one is told
    /// [`CallError::OutputForgotten`](crate::CallError::OutputForgotten).
    pub executed_bytes_max: usize,
}

/// How a call is made. A [`Duration`] stands for a call with that time-out and no retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// How long the caller waits, over all attempts.
    pub timeout: Duration,
    /// How many more times it is tried if the target cannot be reached or the connection is lost. The target
    /// runs it at most once all the same: a later attempt gets the answer to the first. If by then another
    /// process serves at that address, the call ends with
    /// [`CallError::Replaced`](crate::CallError::Replaced), unless it is `idempotent`.
    pub retries: u32,
    /// True if the call may as well run twice: it is then also tried again with a target that took the place
    /// of the first.
    pub idempotent: bool,
    /// True if the target is to say how long it handled the call.
    pub timing: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            calls_max: 1 << 16,
            calls_per_peer_max: 1 << 14,
            overflow_size_max: 256 << 20,
            overflow_bytes_max: 1 << 30,
            overflow_timeout: Duration::from_secs(30),
            arrivals_max: 1 << 14,
            eager_size_max: 64 << 10,
            executed_max: 1 << 16,
            executed_bytes_max: 64 << 20,
        }
    }
}

impl CallOptions {
    /// One attempt, with this time-out.
    pub const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            retries: 0,
            idempotent: false,
            timing: false,
        }
    }
}

impl From<Duration> for CallOptions {
    fn from(timeout: Duration) -> Self {
        Self::new(timeout)
    }
}
