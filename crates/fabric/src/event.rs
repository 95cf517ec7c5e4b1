//! The events that an endpoint reports to its owner, and the errors with which it refuses.

use std::{io, sync::Arc};

use thiserror::Error;

use crate::{
    AccessError, Address, Body, Buffer, Identity, PeerId, frame::FrameError, handshake::HandshakeError,
};

/// A process at the other end, as it proved itself when the connection was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it is reached.
    pub address: Address,
    /// Who it is in the job.
    pub identity: Identity,
    /// Random bits that tell its endpoint from earlier and later ones at its address.
    pub instance: u64,
}

/// The name of an operation in progress; unique in one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    pub(crate) index: u32,
    generation: u32,
}

impl OperationId {
    pub(crate) fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// A small number that no other operation has until the owner is told of the end of this one: for tables of
    /// the owner.
    pub fn index(self) -> usize {
        self.index as usize
    }

    pub(crate) fn generation(self) -> u32 {
        self.generation
    }

    /// The tag that the reply has to bear if this is a [`receive_reply`](crate::Endpoint::receive_reply); unique
    /// in the endpoint.
    pub fn tag(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The operation with this tag.
    pub fn from_tag(tag: u64) -> Self {
        Self {
            index: tag as u32,
            generation: (tag >> 32) as u32,
        }
    }
}

/// Something that happened at an endpoint.
#[derive(Debug)]
pub enum Event {
    /// An operation ended. Each ends exactly once, by its deadline at the latest, unless it is cancelled.
    Completed {
        /// Which.
        operation: OperationId,
        /// How.
        result: Result<Completion, OperationError>,
    },
    /// A peer is gone, or could not be reached; what was in progress with it was completed before. Messages
    /// to it that were not delivered are lost.
    PeerDied {
        /// The name of the peer; of no use from now on.
        peer: PeerId,
        /// Where it was.
        address: Address,
        /// The cause, as this endpoint has seen it.
        cause: PeerDeath,
    },
    /// A message that nobody waited for by name.
    Unexpected {
        /// Who sent it; see [`Endpoint::peer_info`](crate::Endpoint::peer_info).
        from: PeerId,
        /// The sender's tag.
        tag: u64,
        /// The content of the message.
        body: Body,
    },
}

impl Event {
    /// How much of a peer's message it holds, in bytes.
    pub(crate) fn message_bytes(&self) -> usize {
        match self {
            Self::Completed {
                result: Ok(Completion::Received(body)),
                ..
            }
            | Self::Unexpected { body, .. } => body.len(),
            Self::Completed { .. } | Self::PeerDied { .. } => 0,
        }
    }
}

/// The result of an operation that succeeded.
#[derive(Debug)]
pub enum Completion {
    /// The buffer given to `get`, filled.
    Got(Buffer),
    /// All bytes given to `put` are in the peer's memory.
    Put,
    /// The expected message, or the reply.
    Received(Body),
}

/// Why an endpoint could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The provider of another crate that the options name cannot be had.
    #[error("cannot bind an endpoint to {provider}")]
    External {
        /// The provider asked for.
        provider: String,
        /// Why not, and what may help.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system refused.
    #[error("cannot bind an endpoint to {address}")]
    Io {
        /// The address asked for.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The options ask for no transport at all.
    #[error("the options of the endpoint ask for no transport: switch on tcp or shm")]
    NoTransport,
    /// The options ask to encrypt, and a provider of another crate does not.
    #[error("cannot bind an endpoint to {provider}: encryption is asked for, which it does not do; use tcp")]
    Unencrypted {
        /// The provider asked for.
        provider: String,
    },
    /// The program was built without the provider that the options name.
    #[error("cannot bind an endpoint to {provider}: this program was built without that provider")]
    Unknown {
        /// The provider asked for.
        provider: String,
    },
    /// Peers could not reach `0.0.0.0` or `::`.
    #[error("cannot bind an endpoint to {address}: name the interface towards the peers")]
    Unspecified {
        /// The address asked for.
        address: std::net::SocketAddr,
    },
}

/// Why an endpoint did not take a message or start an operation. Nothing was sent.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A limit is reached; drive the endpoint and try again.
    #[error("too much is waiting for {peer}: {limit} is reached; let the endpoint make progress first")]
    Busy {
        /// For whom.
        peer: Address,
        /// Which field of [`Limits`](crate::Limits).
        limit: &'static str,
    },
    /// No connection could be begun.
    #[error("cannot connect to {peer}")]
    Connect {
        /// With whom.
        peer: Address,
        /// Why.
        #[source]
        source: Arc<io::Error>,
    },
    /// This process was forked off the one that made the endpoint, to which it belongs.
    #[error("the endpoint belongs to the process that this one was forked from; make a new one")]
    Forked,
    /// There is no connection with the one to be answered, which is gone.
    #[error("the peer is not connected any more and waits for no answer")]
    NotConnected,
    /// The range is not inside the region.
    #[error("{length} bytes at {offset} are not inside the region of {region_length} bytes")]
    OutOfRange {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
        /// How many the region has.
        region_length: u64,
    },
    /// The handle does not allow writing.
    #[error("the handle allows to read, not to write")]
    ReadOnly,
    /// The message is too large.
    #[error("a message of {size} bytes is larger than the largest, {size_max}; expose a region for it")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The largest size in bytes.
        size_max: usize,
    },
    /// No provider of this endpoint can reach it.
    #[error("{address} is not an address this endpoint can reach: expected one of {expected}")]
    Unreachable {
        /// The address.
        address: Address,
        /// The forms of address that it can reach.
        expected: &'static str,
    },
}

/// Why an operation ended without its result.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The peer refused access to its memory.
    #[error("{peer} refused access to its memory")]
    Access {
        /// Who refused.
        peer: Address,
        /// Why.
        #[source]
        source: AccessError,
    },
    /// The peer is gone, or could not be reached.
    #[error("{peer} is gone")]
    PeerDied {
        /// Where it was.
        peer: Address,
        /// The cause, as this endpoint has seen it.
        #[source]
        source: PeerDeath,
    },
    /// The deadline passed.
    #[error("{peer} did not answer in time")]
    TimedOut {
        /// Who was waited for.
        peer: Address,
    },
}

/// How it was seen that a peer is gone, or is none.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PeerDeath {
    /// It closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// It could not be connected to in time.
    #[error("no connection in time")]
    ConnectTimedOut,
    /// [`Endpoint::fence`](crate::Endpoint::fence) was called for it.
    #[error("it is fenced: the job counts it as gone")]
    Fenced,
    /// It did not prove who it is in the job, or one of the two is fenced.
    #[error("it did not prove that it belongs to the job")]
    Handshake(#[source] HandshakeError),
    /// The operating system reports the connection broken, or refused.
    #[error("the connection is broken")]
    Io(#[source] Arc<io::Error>),
    /// It sent something that is against the protocol.
    #[error("it broke the protocol")]
    Protocol(#[source] FrameError),
    /// Another process answers at its address.
    #[error("another process took its address")]
    Replaced,
    /// The operating system tells that its process has died.
    #[error("its process died")]
    Killed,
    /// Nothing was heard of it for longer than [`Limits::heartbeat`](crate::Limits::heartbeat) although it was
    /// waited for: its process is stopped, or its host or the network is gone.
    #[error("it gave no sign of life")]
    Silent,
    /// It asks for more and more, but reads no answers.
    #[error("it asks for more than it reads")]
    Unreading,
}

impl From<rustix::io::Errno> for PeerDeath {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(Arc::new(errno.into()))
    }
}
