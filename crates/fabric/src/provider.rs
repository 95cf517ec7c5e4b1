//! Transports between endpoints, and the parts that one in a crate of its own is made of.
//!
//! A [`Provider`] that moves bytes has for its connections the [`Handshake`], and for what comes after that the
//! [`Frames`]. [`Endpoint::bind_with`](crate::Endpoint::bind_with) gives it an endpoint.

use std::time::Instant;

use bytes::Bytes;

pub use self::frames::{Frames, Receiver};
use crate::{
    AccessError, Address, Buffer, Messages, OperationId, PeerDeath, PeerId, RegionHandle, SubmitError,
    Withdrawn,
};
pub use crate::{
    endpoint::Binding,
    frame::{ACCESS_SIZE, HEADER_SIZE, MessageKind},
    handshake::{Handshake, Introduction, Step},
    inbox::Around,
    outgoing_message::OutgoingMessage,
    peer_table::Activity,
    poller::Ready,
    region_table::{Access, RegionMemory, RegionTable},
};

mod frames;
pub(crate) mod shm;
pub(crate) mod stream;

/// A transport between endpoints (the paper's NA plugin).
///
/// Nothing blocks and nothing happens outside [`progress`](Self::progress), which also serves the peers'
/// one-sided operations. The endpoint keeps the deadlines, matches expected messages, sends heartbeats and talks
/// to itself without any provider. It calls the others only for peers that [`connect`](Self::connect) took.
pub trait Provider: Send {
    /// Sees to a connection with `peer`, so that its death will be told. If the process of `peer` is stopped, which
    /// `is_stopped` says, it may take any time to prove itself once its system has taken the connection.
    ///
    /// # Errors
    /// [`SubmitError::Unreachable`] for an address of another transport.
    fn connect(&mut self, peer: PeerId, address: &Address, is_stopped: bool) -> Result<(), SubmitError>;

    /// The connection with `peer`, if only in the making.
    fn link(&self, peer: PeerId) -> Option<Link>;

    /// The signs of life of `peer`, in any unit: bytes or messages.
    fn activity(&self, peer: PeerId) -> Activity;

    /// Closes the connections with `peer`, if there are any, and tells of its death.
    fn disconnect(&mut self, peer: PeerId, cause: PeerDeath, around: &mut Around<'_>);

    /// Queues a message. Messages to one peer arrive in the order of these calls. One that may wait need not be sent
    /// before there is another one, but after some milliseconds at the latest.
    ///
    /// # Errors
    /// If too much waits for the peer already, or it is not connected.
    fn send(&mut self, peer: PeerId, message: OutgoingMessage<'_>) -> Result<(), SubmitError>;

    /// Starts a `get` or `put` of ours; [`Around::handle_transferred`] ends it.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    fn transfer(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        memory: Memory,
    ) -> Result<(), SubmitError>;

    /// Forgets a `get` or `put` with `peer`: nothing will be told of it.
    fn cancel(&mut self, operation: OperationId, peer: PeerId);

    /// Sends what is possible at once, and receives what can be had without asking the system. It comes before each
    /// [`progress`](Self::progress), and before anybody asks the system what is ready: nobody shall wait for that.
    fn send_queued(&mut self, around: &mut Around<'_>);

    /// Sends and receives what is possible at once. `ready` is what was found ready of all descriptors of the endpoint;
    /// without it, nobody looked, and it need not see to peers of which nothing was heard lately.
    fn progress(&mut self, ready: Option<&Ready>, around: &mut Around<'_>);

    /// True if there is work of this kind.
    fn has(&self, work: Work) -> bool;

    /// Prepares for the owner to sleep: from now on a descriptor that the endpoint watches becomes readable when
    /// there is something to do. Returns how long it may sleep.
    fn arm(&mut self) -> Sleep;

    /// The memory that it shares with processes of this host, if it does that.
    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        None
    }
}

/// A provider's messages and regions in memory that it shares with processes of this host.
pub trait SharedMemory {
    /// Receives, as far as there is room, what `progress` left where it was because the owner takes the messages
    /// itself.
    fn receive(&mut self, around: &mut Around<'_>, messages: &mut Messages);

    /// Memory that peers reach faster than other.
    fn allocate(&mut self, length: usize) -> Option<Buffer>;

    /// Learns of a region that peers may now access. It stays where it is until it is withdrawn.
    fn handle_exposed(&mut self, region: &RegionHandle, memory: RegionMemory<'_>);

    /// Learns that a region is withdrawn: from now on peers must not access it. Returns the memory for its owner: a
    /// copy if a peer may still be writing the original.
    fn handle_withdrawn(&mut self, region: u64, memory: Withdrawn) -> Withdrawn;

    /// True if it sees processes die that nothing tells of at once: while something is waited for, `progress` is to
    /// be called every few milliseconds.
    fn sees_processes(&self) -> bool;
}

/// A connection of a provider with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name of the transport.
    pub name: &'static str,
    /// True if the system of the peer has taken a connection that lives.
    pub is_reached: bool,
}

/// Kinds of work of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Something was heard lately, so that it pays to look often.
    Hot,
    /// `progress` would try to send something.
    Sendable,
    /// Data of one-sided operations of ours is on its way.
    Transfers,
    /// Something waits to be sent, even if a peer has to read or a connection to be made first.
    Unsent,
}

/// How long the owner of an endpoint may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Not at all: there is something to do.
    No,
    /// Until a descriptor becomes readable, or until this moment.
    Until(Option<Instant>),
}

/// Our end of a one-sided operation, as long as the access.
#[derive(Debug)]
pub enum Memory {
    /// Filled by a `get`.
    Into(Buffer),
    /// Written to the peer by a `put`.
    From(Bytes),
}

impl Memory {
    /// The size in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::Into(buffer) => buffer.len(),
            Self::From(bytes) => bytes.len(),
        }
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
    /// The name of the provider in addresses and options.
    pub name: &'static str,
    /// Why it is not available, if it is not.
    pub unavailable: Option<String>,
}
