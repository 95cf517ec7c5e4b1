//! Names that several jobs share: the table of a name server, the requests of launchers, and their answers to
//! their programs.
//!
//! A job has names of its own, which end with it. With a name server (`ropewalk nameserver`,
//! [`PmiOptions::name_server`](crate::PmiOptions::name_server)) its launcher asks that one instead, for all its
//! programs. A name belongs to the job that published it: no other can take it away, and it is gone as soon
//! as the connection of that job is, so that nobody looks up the port of a job that is over.

mod client;
mod protocol;
mod table;

use core::{fmt, net::SocketAddr};

use zeroize::{Zeroize, ZeroizeOnDrop};

pub use client::{Action, CallId, NameClient};
pub use protocol::{
    MESSAGE_SIZE_MAX, NAMES, NameRefusal, NameReply, NameRequest, NoReply, decode, encode, identity_of_job,
    identity_of_server,
};
pub use table::NameTable;

/// Where a name server is, and by what one proves oneself to it.
#[derive(Clone, Debug)]
pub struct NameServerAccess {
    /// Where it listens.
    pub address: SocketAddr,
    /// The key that it was started with. It is sent to nobody, not even to the job's agents.
    pub key: NameServerKey,
}

/// The 32 secret bytes of the key of a name server; wiped from memory when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct NameServerKey([u8; 32]);

impl NameServerKey {
    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for proving its possession.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for NameServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameServerKey(..)")
    }
}

/// The port of a name server for which none is given: that of Hydra's.
pub const NAME_SERVER_PORT: u16 = 6392;
