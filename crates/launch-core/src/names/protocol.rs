//! The messages between launchers and a name server: postcard in messages of a fabric, behind its handshake.

use core::net::SocketAddr;

use bstr::BString;
use ropewalk_names::{Identity, Incarnation, JobId, Rank, Role};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::NameTable;

/// In the place of a job's number: who means something else by the messages has another one.
pub const NAMES: JobId = JobId(*b"ropewalk names 1");

/// The request of a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameRequest {
    /// To know the port.
    Lookup {
        /// The name.
        service: BString,
    },
    /// To make a port known.
    Publish {
        /// The name.
        service: BString,
        /// The port behind the name.
        port: BString,
    },
    /// To have a name forgotten.
    Unpublish {
        /// The name.
        service: BString,
    },
}

/// The reply to a request: with [`NameRequest::Lookup`] the port.
pub type NameReply = Result<Option<BString>, NameRefusal>;

/// Why the server refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum NameRefusal {
    /// All names and ports together are too much.
    #[error("the name server is full: it keeps {} bytes", NameTable::<()>::BYTES_MAX)]
    Full,
    /// Nobody published it.
    #[error("nobody published this name")]
    NotFound,
    /// Another job published it.
    #[error("another job published this name, and only that one can unpublish it")]
    NotYours,
    /// Somebody published it already.
    #[error("this name is published already")]
    Published,
    /// The name or the port is too long.
    #[error(
        "a name has up to {} bytes and a port up to {}",
        NameTable::<()>::SERVICE_SIZE_MAX,
        NameTable::<()>::PORT_SIZE_MAX
    )]
    TooLong,
    /// The job has too many.
    #[error("this job has published {} names already", NameTable::<()>::PER_JOB_MAX)]
    TooMany,
    /// The message was no request.
    #[error("the name server does not understand this launcher: are both the same version?")]
    Unclear,
}

/// Why there is no reply to a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoReply {
    /// The job has no name server.
    #[error("this job has no name server")]
    NoServer,
    /// The request could not be sent.
    #[error("the name server at {server} cannot be asked: {cause}")]
    NotSent {
        /// The server.
        server: SocketAddr,
        /// The error below.
        cause: String,
    },
    /// No answer came.
    #[error("the name server at {server} does not answer ({hint}): {cause}")]
    Silent {
        /// The server.
        server: SocketAddr,
        /// A question that may help.
        hint: &'static str,
        /// The error below.
        cause: String,
    },
    /// The answer is none.
    #[error("the name server at {server} is not understood: is it of the same version?")]
    Unclear {
        /// The server.
        server: SocketAddr,
    },
    /// There is no connection.
    #[error("no way to the name server at {server}: {cause}")]
    Unreachable {
        /// The server.
        server: SocketAddr,
        /// The error below.
        cause: String,
    },
}

/// The largest message, in bytes: the longest name and port fit.
pub const MESSAGE_SIZE_MAX: usize = NameTable::<()>::SERVICE_SIZE_MAX + NameTable::<()>::PORT_SIZE_MAX + 64;

/// Whom the server proves to be. Whoever has the key can be any of them; it is drawn anew for each server.
pub fn identity_of_server() -> Identity {
    identity(Role::Agent, 0)
}

/// Whom a job's launcher proves to be.
pub fn identity_of_job(lot: u32) -> Identity {
    identity(Role::Launcher, lot)
}

fn identity(role: Role, rank: u32) -> Identity {
    Identity {
        role,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    }
}

/// A message as it is sent.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).expect("a message in memory has a length, and memory grows")
}

/// `None` if the bytes are not the whole of one.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}
