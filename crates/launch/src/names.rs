//! Names that several jobs share: what a name server keeps, what launchers say to it, and what they answer their programs.
//!
//! A job has names of its own, which end with it. With a name server ([`NameServer`](crate::NameServer),
//! [`JobSpec::name_server`](crate::JobSpec::name_server)) its launcher asks that one instead, for all its programs. A name
//! belongs to the job that published it: no other can take it away, and it is gone as soon as the connection of that job is,
//! so that nobody looks up the port of a job that is over.

mod client;
mod protocol;
mod table;

use core::net::SocketAddr;

use ropewalk_fabric::JobKey;

pub(crate) use client::{Action, CallId, NameClient};
pub(crate) use protocol::{
    MESSAGE_SIZE_MAX, NAMES, NameRefusal, NameReply, NameRequest, decode, encode, identity_of_job,
    identity_of_server,
};
pub(crate) use table::NameTable;

/// Where a name server is, and by what one proves oneself to it.
#[derive(Clone, Debug)]
pub struct NameServerAccess {
    /// Where it listens.
    pub address: SocketAddr,
    /// The key that it was started with. It is sent to nobody, not even to the job's agents.
    pub key: JobKey,
}

/// The port of a name server for which none is given: that of Hydra's.
pub const NAME_SERVER_PORT: u16 = 6392;
