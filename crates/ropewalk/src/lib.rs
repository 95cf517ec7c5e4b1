//! The runtime that keeps a parallel job going: facade library and command.
//!
//! Each system is a crate of its own and usable alone; here they have one name. The `ropewalk` command is in the
//! same package.

#[cfg(feature = "fuzzing")]
extern crate self as ropewalk;

#[cfg(feature = "fuzzing")]
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the command uses all of it, fuzz targets a part"
)]
mod commands {
    pub(crate) mod nameserver;
    mod output_file;
    mod page;
    pub(crate) mod partner;
    pub(crate) mod run;
    mod times;
}
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod npy;

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
