//! What carries the calls.

use clap::ValueEnum;
use ropewalk::rpc::{Buffer, EndpointOptions, Engine};
use serde::{Deserialize, Serialize};

/// What carries the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(super) enum Provider {
    /// What the endpoints choose
    Auto,
    /// libfabric
    Ofi,
    /// Shared memory
    Shm,
    /// TCP
    Tcp,
}

impl Provider {
    /// Restricts an endpoint to this provider.
    pub(super) fn choose(self, _options: &mut EndpointOptions) {}

    /// Memory in which peers on the same host can read for themselves, where there is such.
    pub(super) fn allocate(_engine: &mut Engine, length: usize) -> Buffer {
        Buffer::zeroed(length)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ofi => "ofi",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}
