//! The runtime that keeps a parallel job going: the facade library.
//!
//! Each system is a crate of its own and usable alone; here they have one name. The `ropewalk` command is the
//! executable of the package `ropewalk-cli`, on which this library does not depend.
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | `rpc::tokio`, which drives an engine in a task of tokio |
//! | `prometheus` | the metrics of an engine of [`rpc`] as text for Prometheus |
//! | `ofi` | peers over libfabric, which is loaded at run time |
//! | `object-store` | uploads of checkpoints ([`checkpoint`]) to folders |
//!
//! A sum over all ranks of a job; each may die when its call has returned:
//!
//! ```
//! use ropewalk::reduce::{Job, ReduceOptions, Sum};
//!
//! let job = Job::from_env()?;
//! let outcome = job.world().allreduce(vec![1_u64; 8], Sum, &ReduceOptions::default())?.get()?;
//! assert_eq!(outcome.value, Some(vec![u64::from(job.size()); 8]));
//! job.finalize()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use ropewalk_checkpoint as checkpoint;
pub use ropewalk_fabric as fabric;
pub use ropewalk_launch as launch;
pub use ropewalk_membership as membership;
pub use ropewalk_names as names;
pub use ropewalk_openfoam as openfoam;
pub use ropewalk_reduce as reduce;
pub use ropewalk_rpc as rpc;

/// PMI, the process management interface: messages, server, client.
pub mod pmi {
    pub use ropewalk_pmi::*;
    pub use ropewalk_pmi_client::{self as client, Client};
}

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
