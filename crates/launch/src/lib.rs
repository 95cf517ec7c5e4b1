//! The process manager: starts, serves, watches and ends the ranks of a job.
//!
//! A program that runs a job uses a [`Launcher`]. It starts a tree of agents, one on each host that ranks are
//! to run on. The agents start the ranks, serve them PMI-1 and PMI-2, watch them, carry their input and
//! output, and keep the memory that ranks hand them for the case that they die. The decisions are those of
//! `ropewalk-launch-core`: `Supervisor` for the job and `HostAgent` for a host; this crate lends them
//! processes, sockets, files and clocks.
//!
//! ```no_run
//! use ropewalk_launch::{JobEvent, JobSpec, Launcher, Segment};
//!
//! let program = Segment { ranks: 4, ..Segment::new("./ring") };
//! let mut launcher = Launcher::start(JobSpec::new("/usr/bin/ropewalk", program))?;
//! while let Some(event) = launcher.next_event(None)? {
//!     if let JobEvent::Finished(outcome) = event {
//!         println!("exit code {}", outcome.exit_code());
//!     }
//! }
//! # Ok::<(), ropewalk_launch::LaunchError>(())
//! ```

mod driver;

pub use driver::{
    LaunchError, Launcher, Layout, NameServer, RankPlace, agent_main, count_parts, is_own_host,
};
pub use ropewalk_launch_core::{
    AgentStart, Binding, BindingError, BindingSyntaxError, CacheKind, CountedParts, DealOrder, Ending,
    Failure, FailureKind, Inherited, Injection, JobEnvironment, JobEvent, JobNetwork, JobOutcome, JobSpec,
    Mapping, MemoryShortage, NAME_SERVER_PORT, NameServerAccess, NameServerKey, OUTPUT_LINE_SIZE_MAX,
    OnFailure, OnStopped, OutputStream, Part, Parts, Placement, PlacementError, PmiOptions, RankMap,
    RankMapError, RankNetwork, Reactions, RespawnPolicy, Segment, Singleton, SpawnedAs, Stall,
    StallDetection, StartMethod, StdinSource, TimeLimits, UniverseSize, UserBinding, Verdict, hosts, mpi,
    processor_list, restart,
};
