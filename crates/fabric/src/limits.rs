//! How much of everything an endpoint keeps.

use std::time::Duration;

/// The maxima of one endpoint. What would exceed one is refused with an error, never queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections, proven or not; above it those who connect are dropped, unless one that is not proven can make
    /// room, and sends to new peers are `Busy`.
    pub connections_max: usize,
    /// Connections whose other end has not even named the job yet, and again as many whose other end has, but
    /// has not proven that it belongs to it. Above it the oldest makes room for the newest, but not before it
    /// had 200 ms: until then nobody else is accepted, and those who connect wait in the system's backlog.
    pub strangers_max: usize,
    /// How long one that connects to us may take for each of its two steps to prove that it belongs to the
    /// job.
    pub handshake_timeout: Duration,
    /// How long one that we connect to may take to accept, and then to prove that it belongs to the job.
    pub connect_timeout: Duration,
    /// The largest message body, in bytes; larger data goes by region and `get` or `put`.
    pub message_size_max: usize,
    /// Bytes of messages, with their headers, waiting for one peer; above it a send is `Busy`.
    pub queued_bytes_max: usize,
    /// Operations of this endpoint that are not complete; above it a new one is `Busy`.
    pub operations_max: usize,
    /// One-sided operations that one peer may have in progress here; above it they are refused.
    pub served_transfers_max: usize,
    /// Answers to one peer's one-sided operations that wait until it reads; above it the peer is cut off. A peer
    /// that reads has at most one for each of its operations in progress.
    pub answers_max: usize,
    /// Events that wait for [`poll_event`](crate::Endpoint::poll_event); above it nothing more is read.
    pub events_max: usize,
    /// Bytes of messages in these events; above it nothing more is read.
    pub events_bytes_max: usize,
    /// How long a peer that is waited for may give no sign of life before it is taken for dead; `None` for ever.
    /// Signs are given by whoever drives the peer's endpoint: it has to be driven more often than that.
    pub heartbeat: Option<Duration>,
    /// How much memory [`Endpoint::allocate`](crate::Endpoint::allocate) can share with peers on this host, in
    /// bytes. Only what is used is taken from the system.
    pub arena_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            strangers_max: 256,
            handshake_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            message_size_max: 16 << 20,
            queued_bytes_max: 64 << 20,
            operations_max: 1 << 16,
            served_transfers_max: 1024,
            answers_max: 1 << 17,
            events_max: 1 << 14,
            events_bytes_max: 256 << 20,
            heartbeat: Some(Duration::from_secs(3)),
            arena_size: 1 << 30,
        }
    }
}
