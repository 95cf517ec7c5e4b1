//! Transports between endpoints, and the parts that one in a crate of its own is made of.
//!
//! A [`Provider`] that moves bytes has for its connections the [`Handshake`], and for their frames the [`Decoder`] and the
//! [`Outbox`]. [`Endpoint::bind_with`](crate::Endpoint::bind_with) gives it an endpoint.

use std::time::Instant;

use bytes::Bytes;

pub use self::stream::outbox::{Outbox, Source, Stream};
use crate::{
    AccessError, Address, Body, Buffer, Messages, OperationId, PeerDeath, PeerId, RegionHandle, SubmitError,
    Withdrawn,
};
pub use crate::{
    endpoint::Binding,
    frame::{ACCESS_SIZE, Decoded, Decoder, HEADER_SIZE, Header, Kind, MessageKind, Status},
    handshake::{Handshake, Introduction, Step},
    inbox::Around,
    peer_table::Activity,
    poller::Ready,
    region_table::{Access, RegionMemory, RegionTable},
};

pub(crate) mod shm;
pub(crate) mod stream;

/// A transport between endpoints (the paper's NA plugin).
///
/// Nothing blocks and nothing happens outside [`progress`](Self::progress), which also serves the peers'
/// one-sided operations. The endpoint keeps the deadlines, matches expected messages, sends heartbeats and talks
/// to itself without any provider. It calls the others only for peers that [`connect`](Self::connect) took.
pub trait Provider: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// What that is called by which it reaches `peer`, with whom there is a connection.
    fn name_to(&self, _peer: PeerId) -> &'static str {
        self.name()
    }

    /// Sees to a connection with `peer`, so that its death will be told. What this transport cannot reach is
    /// [`SubmitError::Unreachable`].
    fn connect(&mut self, peer: PeerId, address: &Address) -> Result<(), SubmitError>;

    /// Whether there is a connection with `peer`, if only in the making.
    fn is_connected(&self, peer: PeerId) -> bool;

    /// The process of `peer` is stopped: from when its system has taken a connection, that may take any time to be proven.
    fn be_patient(&mut self, _peer: PeerId) {}

    /// Whether the system of `peer` has taken a connection that lives.
    fn is_reached(&self, _peer: PeerId) -> bool {
        false
    }

    /// Closes what there is with `peer`, and tells of its death.
    fn disconnect(&mut self, peer: PeerId, cause: PeerDeath, around: &mut Around<'_>);

    /// Queues a message. Messages to one peer arrive in the order of these calls.
    fn send(&mut self, peer: PeerId, kind: MessageKind, tag: u64, body: &Body) -> Result<(), SubmitError>;

    /// Starts to fill `into` from the peer's region.
    fn get(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        into: Buffer,
    ) -> Result<(), SubmitError>;

    /// Starts to write `from` into the peer's region.
    fn put(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        from: Bytes,
    ) -> Result<(), SubmitError>;

    /// Forgets a `get` or `put`: nothing will be told of it.
    fn cancel(&mut self, operation: OperationId);

    /// Sends what is possible at once, and receives what can be had without asking the system. It comes before each
    /// [`progress`](Self::progress), and before anybody asks the system what is ready: nobody shall wait for that.
    fn send_queued(&mut self, around: &mut Around<'_>);

    /// Sends and receives what is possible at once. `ready` is what was found ready of all descriptors of the endpoint;
    /// without it, nobody looked, and it need not see to peers of which nothing was heard lately.
    fn progress(&mut self, ready: Option<&Ready>, around: &mut Around<'_>);

    /// Receives, as far as there is room, what `progress` left where it was because the owner
    /// takes the messages itself.
    fn receive(&mut self, _around: &mut Around<'_>, _messages: &mut Messages) {}

    /// Prepares for the owner to sleep: from now on a descriptor that the endpoint watches
    /// becomes readable when there is something to do. Returns whether there is something already.
    fn arm(&mut self) -> bool {
        false
    }

    /// Whether something was heard lately, so that it pays to look often.
    fn is_hot(&self) -> bool;

    /// Whether data of one-sided operations of ours is on its way.
    fn is_transferring(&self) -> bool {
        false
    }

    /// Whether `progress` would try to send something.
    fn has_sendable(&self) -> bool;

    /// Whether something waits to be sent, even if a peer has to read or a connection to be made first.
    fn has_unsent(&self) -> bool;

    /// When `progress` has to be called even if the descriptor is not readable.
    fn next_deadline(&self) -> Option<Instant>;

    /// Whether it sees processes die that nothing tells of at once: while it is waited for something, `progress` is
    /// to be called every few milliseconds.
    fn sees_processes(&self) -> bool {
        false
    }

    /// What was seen of `peer`, in any unit: bytes or messages.
    fn activity(&self, peer: PeerId) -> Activity;

    /// Learns of a region that peers may now access. It stays where it is until it is withdrawn.
    fn handle_exposed(&mut self, _region: &RegionHandle, _memory: RegionMemory<'_>) {}

    /// Learns that a region is withdrawn: from now on peers must not access it. `memory` is what it was; what is
    /// returned is its owner's again, a copy if a peer may still be writing the original.
    fn handle_withdrawn(&mut self, _region: u64, memory: Withdrawn) -> Withdrawn {
        memory
    }

    /// Memory that peers reach faster than other.
    fn allocate(&mut self, _length: usize) -> Option<Buffer> {
        None
    }
}

/// How a one-sided operation of ours ended well.
#[derive(Debug)]
pub enum Transferred {
    /// A `get` has filled this.
    Got(Buffer),
    /// A `put` is done.
    Put,
}

/// How a one-sided operation of ours failed.
#[derive(Debug)]
pub enum TransferFailure {
    /// The peer refused it.
    Access(AccessError),
    /// The peer is gone.
    PeerDied(PeerDeath),
}

/// A way to reach peers, and whether an endpoint has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderStatus {
    /// What it is called in addresses and options.
    pub name: &'static str,
    /// Why it is not available, if it is not.
    pub unavailable: Option<String>,
}
