//! Why hosts could not have each other's checkpoints.

use ropewalk_checkpoint_core::ManifestError;
use ropewalk_rpc::{BindError, CallError};
use thiserror::Error;

use crate::store_error::StoreError;

/// Why a part could not be copied, or a job's hosts not agree on what to start from.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PartnerError {
    /// This host has no endpoint.
    #[error("cannot listen for other hosts")]
    Bind(#[from] BindError),
    /// Another host did not answer, or not as it should.
    #[error("host {host} does not give what it has")]
    Call {
        /// Which.
        host: String,
        /// Why.
        #[source]
        source: CallError,
    },
    /// Another host has sent something else than the manifest says.
    #[error(
        "what host {host} sends of rank {rank}'s part of generation {generation} is not what its manifest says"
    )]
    Changed {
        /// Which host.
        host: String,
        /// Whose part.
        rank: u32,
        /// Of which generation.
        generation: u64,
    },
    /// Another host has sent something else than a manifest.
    #[error("host {host} sends no manifest")]
    Manifest {
        /// Which.
        host: String,
        /// Why not.
        #[source]
        source: ManifestError,
    },
    /// The journal of another host cannot be kept.
    #[error("cannot keep the journal of the job")]
    Journal(#[source] std::io::Error),
    /// The host that lets all others begin did not.
    #[error("the hosts' checkpoints were not made ready in time")]
    NotBegun,
    /// Parts that hosts were to fetch were lost while they did, again and again.
    #[error("hosts could not fetch what they need to start from generation {generation}: {why}")]
    NotFetched {
        /// The generation.
        generation: u64,
        /// The reason that the first of these hosts gives.
        why: String,
    },
    /// The own directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operating system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}
