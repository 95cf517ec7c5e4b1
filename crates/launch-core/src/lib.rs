//! The decisions of the process manager, as state machines without sockets, processes, files or clocks.
//!
//! A [`JobSpec`] becomes a [`Plan`](protocol::Plan), which all nodes of the job's tree are told. On each node a
//! [`Relay`](relay::Relay) hands on what goes by, over a [`Link`](link::Link) to each neighbour. The
//! [`Supervisor`](supervisor::Supervisor) decides over the job, a [`HostAgent`](host_agent::HostAgent) over a host,
//! [`Restarts`](restart::Restarts) over another attempt, and the [`JobOutcome`] says how all of it ended.
//!
//! Inputs come in through `handle_*`, with the time as an argument; outputs leave through `poll_*`. The crate
//! `ropewalk-launch` drives these machines.
//!
//! # Examples
//! Four ranks on two hosts, of which one has two slots:
//! ```
//! use ropewalk_launch_core::{Placement, hosts::parse_hosts, placement::place};
//! use ropewalk_names::Rank;
//!
//! let hosts = parse_hosts("a:2,b")?;
//! let plans = place(4, &hosts, &Placement::default(), "launcher-host")?;
//! let ranks = |host: usize| plans[host].ranks().collect::<Vec<_>>();
//! assert_eq!((plans[0].name.as_str(), ranks(0)), ("a", vec![Rank(0), Rank(1), Rank(3)]));
//! assert_eq!((plans[1].name.as_str(), ranks(1)), ("b", vec![Rank(2)]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod batch;
mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod group_plan;
pub mod host_agent;
pub mod host_files;
pub mod hosts;
mod inherited;
mod injection;
mod job;
mod lines;
pub mod link;
pub mod mpi;
pub mod names;
mod outcome;
pub mod placement;
pub mod plan;
pub mod pmix;
pub mod protocol;
pub mod relay;
pub mod restart;
pub mod supervisor;
pub mod tree;
mod verdict;

pub use event::{JobEvent, OutputStream};
pub use inherited::{Inherited, RankNetwork};
pub use job::{
    AgentStart, Injection, JobEnvironment, JobNetwork, JobSpec, OnFailure, OnStopped, PmiOptions, Reactions,
    RespawnPolicy, Segment, Singleton, Stall, StallDetection, StartMethod, StdinSource, TimeLimits,
    UniverseSize,
};
pub use lines::{OUTPUT_LINE_SIZE_MAX, WholeLines};
pub use names::{NAME_SERVER_PORT, NameServerAccess, NameServerKey};
pub use outcome::JobOutcome;
pub use placement::{
    Binding, BindingError, BindingSyntaxError, CacheKind, CountedParts, DealOrder, Mapping, Part, Parts,
    Placement, PlacementError, RankMap, RankMapError, UserBinding, processor_list,
};
pub use verdict::{Ending, Failure, FailureKind, MemoryShortage, SpawnedAs, Verdict};
