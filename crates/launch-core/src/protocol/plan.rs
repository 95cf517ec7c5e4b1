//! The job as all nodes of its tree know it, and as one host's agent does.

use std::{ffi::OsString, time::Duration};

use ropewalk_names::{HostId, JobId, Rank};
use ropewalk_pmi as pmi;
use serde::{Deserialize, Serialize};

use crate::{
    job::{AgentStart, JobEnvironment, JobNetwork, Segment, Singleton, Stall, StallDetection, StdinSource},
    mpi::service::PmiChoice,
    placement::{Binding, CountedParts, HostPlan},
    tree::{NodeId, Tree},
};

/// The job as all nodes know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The job.
    pub job: JobId,
    /// How many ranks the job has.
    pub size: u32,
    /// The hosts, in order of their numbers.
    pub hosts: Vec<HostPlan>,
    /// The programs of the ranks, in order of the ranks.
    pub(crate) segments: Vec<Segment>,
    /// The variables of the ranks; those of each segment and rank come to them.
    pub environment: PlannedEnvironment,
    /// The agents, whose executable is the same on every host.
    pub agents: AgentStart,
    /// How long a node may be silent before it is taken for dead; all other time-outs derive from it.
    pub detect: Duration,
    /// How long an agent may take to come up.
    pub(crate) start_timeout: Duration,
    /// How the nodes and the ranks reach each other.
    pub network: JobNetwork,
    /// The reactions to ranks that fail or make no progress.
    pub reactions: PlannedReactions,
    /// The readers of the launcher's standard input.
    pub stdin: StdinSource,
    /// Ranks write to pseudo-terminals, and not to pipes.
    pub has_terminals: bool,
    /// The processors that ranks are bound to.
    pub binding: Binding,
    /// The parts that each host must have as many of as the launcher's.
    pub counted: Option<CountedParts>,
    /// Agents tell to which processors each rank is bound.
    pub tells_bindings: bool,
    /// The process management interface of the ranks.
    pub pmi: PlannedPmi,
}

/// The facts from which the variables of ranks are made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedEnvironment {
    /// The variables of the launcher's environment that some ranks get.
    pub inheritable: Vec<(OsString, OsString)>,
    /// Which of them those get for whose program nothing else is said, and the variables of all ranks besides.
    pub common: JobEnvironment,
    /// How many graphics processors each rank gets; nothing is said with `None`.
    pub(crate) gpus_per_rank: Option<u16>,
    /// The variable `MASTER_PORT` of the ranks.
    pub(crate) master_port: u16,
}

/// The reactions to ranks that fail or make no progress.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PlannedReactions {
    /// The job goes on without ranks that fail.
    pub(crate) continues: bool,
    /// Ranks that fail may get another process.
    pub respawns: bool,
    /// The end of the job if its ranks make no progress.
    pub stall: StallDetection,
}

/// The process management interface of the ranks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PlannedPmi {
    /// The protocol by which ranks find each other.
    pub protocol: PmiChoice,
    /// The number of processes for which there is room, as programs are told; `None` if they are told nothing.
    pub(crate) universe_size: Option<u32>,
    /// Ranks connect to a port, and inherit no descriptor.
    pub by_port: bool,
    /// The process that runs already, if the job is one of those.
    pub singleton: Option<Singleton>,
    /// A name server keeps the names that programs publish.
    pub(crate) shares_names: bool,
}

/// The facts by which the agent of one host decides.
#[derive(Clone, Debug)]
pub struct Start {
    /// The job.
    pub job: JobId,
    /// How many ranks the job has.
    pub size: u32,
    /// Those of this host.
    pub ranks: Vec<Rank>,
    /// The job has no other host.
    pub is_alone: bool,
    /// Ranks encrypt what they send to other hosts.
    pub encrypt: bool,
    /// The detection time of the job.
    pub detect: Duration,
    /// Ranks that fail may get another process.
    pub respawns: bool,
    /// Its only rank was not started by us.
    pub(crate) is_singleton: bool,
    /// A name server keeps the names that programs publish.
    pub(crate) shares_names: bool,
    /// The launcher hears if a rank would wait for ever for one that is lost.
    pub(crate) tells_who_may_hang: bool,
    /// The job as process group of PMI.
    pub pmi: pmi::GroupOptions,
}

impl Plan {
    /// Returns true if an agent goes on below the launcher when the agent above it is lost. Where the job ends with a
    /// lost agent nobody need, and where all are right below the launcher nobody can.
    pub fn adopts(&self) -> bool {
        self.survives_failures() && self.hosts.len() > self.agents.arity.max(1) as usize
    }

    /// Says if the job may go on after a failure.
    pub(crate) fn survives_failures(&self) -> bool {
        self.reactions.continues || self.reactions.respawns
    }

    /// Says if a loss begins the watch for a job that makes no progress.
    pub(crate) fn watches_losses(&self) -> bool {
        self.survives_failures() && matches!(self.reactions.stall.limit, Stall::AfterLoss(_))
    }

    /// The tree of the job's nodes.
    pub fn tree(&self) -> Tree {
        Tree::new(self.hosts.len() as u32, self.agents.arity)
    }

    /// The agent of a rank's host.
    pub fn node_of(&self, rank: Rank) -> Option<NodeId> {
        let host = self.hosts.iter().position(|host| host.has(rank))?;
        Some(NodeId::of(HostId(host as u32)))
    }
}
