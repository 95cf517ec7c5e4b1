//! The job, its key and the engines of all processes of this example.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
};

use anyhow::{Context, Result};
use ropewalk_names::{Incarnation, JobId, Rank};
use ropewalk_rpc::{Endpoint, EndpointOptions, Engine, Identity, JobKey, Role};

const JOB: JobId = JobId(*b"hot restart demo");

/// The bytes of the key by which the processes know each other.
#[derive(Clone, Copy)]
pub(crate) struct Key([u8; 32]);

impl Key {
    pub(crate) fn generate() -> Result<Self> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).context("the system gives no random numbers")?;
        Ok(Self(key))
    }

    /// As the parent wrote it.
    pub(crate) fn read(mut from: impl Read) -> Result<Self> {
        let mut key = [0; 32];
        from.read_exact(&mut key)
            .context("expected the 32 bytes of the job's key on standard input")?;
        Ok(Self(key))
    }

    pub(crate) fn write(&self, mut to: impl Write) -> Result<()> {
        to.write_all(&self.0).context("the server does not take the key")
    }
}

/// An engine on this host, at this port or at any.
pub(crate) fn engine(key: Key, rank: u32, port: u16) -> Result<Engine> {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JOB, JobKey::from_bytes(key.0), identity);
    options.bind = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Ok(Engine::new(Endpoint::bind(options)?))
}
