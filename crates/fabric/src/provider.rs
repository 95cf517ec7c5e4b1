//! What a transport has to do.

use std::{os::fd::AsFd, sync::Arc, time::Instant};

use bytes::Bytes;

use crate::{
    AccessError, Address, Buffer, Peer, PeerDeath, RegionHandle, SubmitError, event::OperationId,
    region_table::RegionTable,
};

pub(crate) mod shm;
pub(crate) mod tcp;

/// A transport between endpoints (the paper's NA plugin).
///
/// Nothing blocks and nothing happens outside [`progress`](Self::progress), which serves the peers' one-sided
/// operations from `regions`. The endpoint calls the others, then `progress`, and takes the events. It keeps
/// the deadlines, matches expected messages and talks to itself without any provider.
pub(crate) trait Provider: AsFd + Send {
    /// Where peers reach this provider.
    fn address(&self) -> &Address;

    /// Sees to a connection to `peer`, so that its death will be told.
    fn connect(&mut self, peer: &Address) -> Result<(), SubmitError>;

    /// Whether there is a connection with `peer`, if only in the making.
    fn is_connected(&self, peer: &Address) -> bool;

    /// Queues a message. Messages to one peer arrive in the order of these calls.
    fn send(&mut self, peer: &Address, kind: MessageKind, tag: u64, body: Bytes) -> Result<(), SubmitError>;

    /// Starts to fill `into` from the region, from `offset` on.
    fn get(
        &mut self,
        operation: OperationId,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
    ) -> Result<(), SubmitError>;

    /// Starts to write `from` into the region, from `offset` on.
    fn put(
        &mut self,
        operation: OperationId,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
    ) -> Result<(), SubmitError>;

    /// Forgets a `get` or `put`: no event will tell of it.
    fn cancel(&mut self, operation: OperationId);

    /// Sends and receives what is possible at once; appends at most about `budget` events.
    fn progress(
        &mut self,
        now: Instant,
        budget: usize,
        regions: &mut RegionTable,
        events: &mut Vec<ProviderEvent>,
    );

    /// Whether `progress` would try to send something.
    fn has_sendable(&self) -> bool;

    /// Whether something waits to be sent, even if a peer has to read or a connection to be made first.
    fn has_unsent(&self) -> bool;

    /// When `progress` has to be called even if the descriptor is not readable.
    fn next_deadline(&self) -> Option<Instant>;
}

/// Whether the receiver posted a receive for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Expected,
    Unexpected,
}

#[derive(Debug)]
pub(crate) enum ProviderEvent {
    Message {
        kind: MessageKind,
        from: Arc<Peer>,
        tag: u64,
        body: Bytes,
    },
    /// All transfers with the peer were completed before.
    PeerDied { peer: Address, cause: PeerDeath },
    Transferred {
        operation: OperationId,
        result: Result<Transferred, TransferFailure>,
    },
}

#[derive(Debug)]
pub(crate) enum Transferred {
    Got(Buffer),
    Put,
}

#[derive(Debug)]
pub(crate) enum TransferFailure {
    Access(AccessError),
    PeerDied(PeerDeath),
}
