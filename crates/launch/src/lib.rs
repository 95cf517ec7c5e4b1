//! The process manager: starts, serves, watches and ends the ranks of a job.
//!
//! [`Launcher`] is what a program uses that runs a job. It starts a tree of agents, one on each host that ranks are to run on,
//! which start the ranks, serve them PMI-1 and PMI-2, watch them, carry their input and output, and keep the memory that
//! ranks hand them for the case that they die. What is decided is decided in pure machines,
//! `Supervisor` for the job and `HostAgent` for a host; `driver` lends them processes, sockets and clocks.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod batch;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the effects around what is decided"
)]
mod driver;
mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group_plan;
mod host_agent;
mod host_files;
pub mod hosts;
mod inherited;
mod injection;
mod job;
#[cfg(test)]
mod job_simulation;
mod lines;
mod link;
pub mod mpi;
mod names;
mod placement;
mod plan;
mod protocol;
mod relay;
pub mod restart;
mod simulation;
mod supervisor;
mod tree;
mod verdict;

pub use driver::{LaunchError, Launcher, Layout, NameServer, agent_main, interface_addresses, is_own_host};
pub use event::{JobEvent, OutputStream};
pub use inherited::{Inherited, RankNetwork};
pub use job::{
    Injection, JobSpec, OnFailure, OnStopped, RespawnPolicy, Segment, Singleton, Stall, StartMethod,
    StdinSource, UniverseSize,
};
pub use lines::OUTPUT_LINE_SIZE_MAX;
pub use names::{NAME_SERVER_PORT, NameServerAccess, NameServerKey};
pub use placement::{
    Binding, BindingSyntaxError, CacheKind, DealOrder, Part, Parts, Placement, PlacementError, RankMap,
    RankMapError, UserBinding,
};
pub use simulation::{StartCosts, StartTimes, simulate_start};
pub use verdict::{Ending, Failure, FailureKind, MemoryShortage, SpawnedAs, Verdict};
