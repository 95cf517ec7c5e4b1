//! What an endpoint tells its owner, and what it refuses.

use std::{io, sync::Arc};

use bytes::Bytes;
use thiserror::Error;

use crate::{AccessError, Address, Buffer, Identity, frame::FrameError, handshake::HandshakeError};

/// A process at the other end, as it proved itself when the connection was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it is reached.
    pub address: Address,
    /// Who it is in the job.
    pub identity: Identity,
}

/// The name of an operation in progress; unique in one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub(crate) u64);

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
        /// Where it was.
        peer: Address,
        /// What was seen.
        cause: PeerDeath,
    },
    /// A message that nobody waited for by name.
    Unexpected {
        /// Who sent it.
        from: Arc<Peer>,
        /// The sender's tag.
        tag: u64,
        /// What it says.
        body: Bytes,
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

/// What an operation brought.
#[derive(Debug)]
pub enum Completion {
    /// The buffer given to `get`, filled.
    Got(Buffer),
    /// All bytes given to `put` are in the peer's memory.
    Put,
    /// The expected message.
    Received(Bytes),
}

/// Why an endpoint could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// The operating system refused.
    #[error("cannot bind an endpoint to {address}")]
    Io {
        /// The address asked for.
        address: std::net::SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
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
    /// There is no connection with the one to be answered, which is gone.
    #[error("{peer} is not connected any more and waits for no answer")]
    NotConnected {
        /// Who was to be answered.
        peer: Address,
    },
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
    #[error("{address} is not an address this endpoint can reach: expected tcp://IP:PORT")]
    Unreachable {
        /// The address.
        address: Address,
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
        /// What was seen.
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
    /// It did not prove that it belongs to the job.
    #[error("it did not prove that it belongs to the job")]
    Handshake(#[source] HandshakeError),
    /// The operating system reports the connection broken, or refused.
    #[error("the connection is broken")]
    Io(#[source] Arc<io::Error>),
    /// What it sent is against the protocol.
    #[error("it broke the protocol")]
    Protocol(#[source] FrameError),
    /// Another process answers at its address.
    #[error("another process took its address")]
    Replaced,
    /// It asks for more and more, but reads no answers.
    #[error("it asks for more than it reads")]
    Unreading,
}

impl From<rustix::io::Errno> for PeerDeath {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(Arc::new(errno.into()))
    }
}
