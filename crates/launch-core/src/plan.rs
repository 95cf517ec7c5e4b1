//! Who runs where, as all nodes of the tree are told, and what each rank's environment says about it.

use std::ffi::{OsStr, OsString};

use ropewalk_names::{HostId, JobId, Rank};
use ropewalk_pmi as pmi;

use crate::{
    group_plan::{GroupPlan, GroupProgram},
    hosts::total_slots,
    inherited::RankNetwork,
    job::{JobSpec, OnFailure, Segment, UniverseSize},
    placement::{Binding, HostPlan, PlacementError, place},
    protocol::{Plan, PlannedEnvironment, PlannedPmi, PlannedReactions, Start},
    tree::NodeId,
};

/// The variable by which the processes of a job are recognised, wherever they went.
pub const JOB_VARIABLE: &str = "ROPEWALK_JOB_ID";

/// In which ranks find which life of their rank they are, from 0.
pub const INCARNATION_VARIABLE: &str = "ROPEWALK_INCARNATION";

/// The process group that the job begins with.
pub(crate) const FIRST_GROUP: pmi::GroupId = pmi::GroupId(0);

/// In jobs in which agents are adopted, the servers of all of them, as the launcher's PMI server knows them.
pub(crate) const ALL_AGENTS: pmi::ChildId = pmi::ChildId(0);

/// The facts that the launcher knows besides the [`JobSpec`].
pub struct Surroundings {
    /// The job.
    pub job: JobId,
    /// The name of the launcher's host.
    pub host_name: String,
    /// How many of its processors this process may use, if programs are told.
    pub processors: u32,
    /// Says if a program on the launcher's host can listen at a port.
    pub is_port_free: fn(u16) -> bool,
    /// Without the variables of links to the agents of an outer job.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory of the launcher, which is that of programs on other hosts too if they name none.
    pub working_directory: Option<OsString>,
}

/// The plan for a job.
pub fn plan(spec: &JobSpec, around: Surroundings) -> Result<Plan, PlacementError> {
    let mut segments: Vec<_> = spec.segments().cloned().collect();
    let size = spec.size();
    let mut hosts = place(size, &spec.hosts, &spec.placement, &around.host_name)?;
    // First, so that the launcher itself starts its agent: to an agent elsewhere, `localhost` is another host.
    hosts.sort_by_key(|host| !host.is_local);
    if hosts.len() > 1 {
        for host in hosts.iter_mut().filter(|host| host.is_local) {
            host.name.clone_from(&around.host_name);
        }
    }
    if hosts.iter().any(|host| !host.is_local) {
        // On another host a program would otherwise start at home.
        for segment in &mut segments {
            if segment.working_directory.is_none() {
                segment.working_directory = around.working_directory.clone().map(Into::into);
            }
        }
    }
    let mut inheritable = inheritable_environment(around.environment);
    // What nobody gets need not travel; what programs spawn gets what the job has.
    let own = segments.iter().filter_map(|segment| segment.inherited.as_ref());
    let wanted: Vec<_> = own.chain([&spec.environment.inherited]).collect();
    inheritable.retain(|(name, _)| wanted.iter().any(|inherited| inherited.includes(name)));
    let master_port = master_port(around.job, &hosts, around.is_port_free);
    Ok(Plan {
        job: around.job,
        size,
        hosts,
        segments,
        environment: PlannedEnvironment {
            inheritable,
            common: spec.environment.clone(),
            gpus_per_rank: spec.placement.gpus_per_rank,
            master_port,
        },
        agents: spec.agents.clone(),
        detect: spec.time_limits.detect,
        start_timeout: spec
            .time_limits
            .start_timeout
            .unwrap_or(spec.time_limits.detect.saturating_mul(START_PATIENCE)),
        network: spec.network.clone(),
        reactions: PlannedReactions {
            continues: !spec.reactions.on_failure.ends_job(),
            respawns: matches!(spec.reactions.on_failure, OnFailure::Respawn(_)),
            stall: spec.reactions.stall,
        },
        stdin: spec.stdin,
        has_terminals: spec.has_terminals,
        binding: spec.placement.binding.clone(),
        counted: spec.placement.counted,
        tells_bindings: spec.placement.tells_bindings,
        pmi: PlannedPmi {
            protocol: spec.pmi.protocol,
            universe_size: match spec.pmi.universe {
                UniverseSize::Unknown => None,
                UniverseSize::Slots if spec.hosts.is_empty() => Some(around.processors),
                UniverseSize::Slots => Some(total_slots(&spec.hosts)),
                UniverseSize::Ranks(size) => Some(size),
            },
            by_port: spec.pmi.by_port,
            singleton: spec.pmi.singleton,
            shares_names: spec.pmi.name_server.is_some(),
        },
    })
}

/// A login takes longer than a sign of life, this many times as long at most.
const START_PATIENCE: u32 = 10;
/// Below the ports that systems choose themselves (32768 and above on Linux).
const MASTER_PORT_MIN: u16 = 20_000;
const MASTER_PORTS: u16 = 10_000;

/// The port of `MASTER_PORT`: one that two jobs at once probably do not share. On the launcher's host it is free; the
/// ports of other hosts are not known here.
fn master_port(job: JobId, hosts: &[HostPlan], is_free: fn(u16) -> bool) -> u16 {
    let first = u16::from_le_bytes([job.0[0], job.0[1]]) % MASTER_PORTS;
    let port = |turn: u16| MASTER_PORT_MIN + (first + turn) % MASTER_PORTS;
    let is_here = hosts.iter().any(|host| host.is_local && host.has(Rank(0)));
    let free = (0..MASTER_PORTS)
        .map(port)
        .find(|&port| !is_here || is_free(port));
    // With no free port at all the program's own error says so.
    free.unwrap_or(port(0))
}

impl Plan {
    /// The facts that the agent of a host has to know.
    pub fn start(&self, host: HostId) -> Start {
        let ranks = self.hosts.get(host.0 as usize).map(HostPlan::ranks);
        Start {
            job: self.job,
            size: self.size,
            ranks: ranks.into_iter().flatten().collect(),
            is_alone: self.hosts.len() == 1,
            encrypt: self.network.encrypt,
            detect: self.detect,
            respawns: self.reactions.respawns,
            is_singleton: self.pmi.singleton.is_some(),
            shares_names: self.pmi.shares_names,
            tells_who_may_hang: self.watches_losses(),
            pmi: self.pmi_group(&self.first_group(), NodeId::of(host)),
        }
    }

    /// The process group that the job begins with.
    pub fn first_group(&self) -> GroupPlan {
        let program = |segment: &Segment| GroupProgram {
            segment: segment.clone(),
            path: None,
        };
        GroupPlan {
            id: FIRST_GROUP.0,
            first: Rank(0),
            size: self.size,
            runs: self.hosts.iter().map(|host| host.runs.clone()).collect(),
            programs: self.segments.iter().map(program).collect(),
            spawner: None,
            preput: Vec::new(),
        }
    }

    /// A process group as the PMI server of one node knows it.
    pub fn pmi_group(&self, group: &GroupPlan, node: NodeId) -> pmi::GroupOptions {
        let tree = self.tree();
        let below = |child| group.ranks_on(tree.hosts_below(child));
        let children = match (self.adopts(), node) {
            (true, NodeId::ROOT) => vec![(ALL_AGENTS, below(NodeId::ROOT))],
            (true, _) => Vec::new(),
            (false, _) => tree
                .children(node)
                .map(|child| (pmi::ChildId(child), below(NodeId(child))))
                .collect(),
        };
        let segments = group.programs.iter().map(|program| program.segment.ranks);
        let absent = match self.reactions {
            PlannedReactions { continues: true, .. } => pmi::AbsentMembers::Exclude,
            PlannedReactions { respawns: true, .. } => pmi::AbsentMembers::FailUntilReplaced,
            _ => pmi::AbsentMembers::Fail,
        };
        pmi::GroupOptions {
            local: group.ranks_on(node.host()),
            children,
            mapping: group.process_mapping(),
            segments: if group.programs.len() > 1 {
                segments.collect()
            } else {
                Vec::new()
            },
            universe_size: self.pmi.universe_size,
            spawner: group.spawner.map(|group| self.kvsname(group)),
            preput: group.preput.clone(),
            absent,
            ..pmi::GroupOptions::one_host(pmi::GroupId(group.id), self.kvsname(group.id), group.size)
        }
    }

    /// The name of a process group's key-value space.
    pub(crate) fn kvsname(&self, group: u32) -> String {
        match group {
            0 => format!("kvs_{}", self.job),
            group => format!("kvs_{}_{group}", self.job),
        }
    }

    /// The name by which other hosts reach the host of a group's rank 0.
    fn master_address(&self, group: &GroupPlan) -> &str {
        let host = group.node_of(group.first).and_then(NodeId::host);
        match host.and_then(|host| self.hosts.get(host.0 as usize)) {
            Some(host) if self.hosts.len() > 1 => host.name.rsplit('@').next().unwrap_or(&host.name),
            _ => "127.0.0.1",
        }
    }

    /// The value that the user gives to a variable of a rank, for the job or for its program.
    fn given(&self, group: &GroupPlan, rank: Rank, name: &str) -> Option<String> {
        let program = group
            .program_of(rank)
            .map(|(_, program)| &program.segment.environment);
        let mut given = self
            .environment
            .common
            .variables
            .iter()
            .chain(program.into_iter().flatten());
        let (_, value) = given.rfind(|(known, _)| known == name)?;
        value.to_str().map(str::to_owned)
    }

    /// The variables by which a rank learns who it is, without those that name descriptors. PMI's are those of
    /// MPICH's Hydra; those of Open MPI are for scripts that choose devices and files by them, and make no
    /// library believe that `mpirun` had started the rank; the others are what frameworks for machine learning read.
    pub fn rank_variables(
        &self,
        group: &GroupPlan,
        host: HostId,
        rank: Rank,
        local_rank: usize,
        local_size: usize,
    ) -> Vec<(&'static str, String)> {
        let given = |name: &str| self.given(group, rank, name);
        let (rank, size) = (rank.0.saturating_sub(group.first.0), group.size);
        let master_port = self
            .environment
            .master_port
            .wrapping_add(group.id as u16 % MASTER_PORTS);
        let mut variables = vec![
            (JOB_VARIABLE, self.job.to_string()),
            ("PMI_RANK", rank.to_string()),
            ("PMI_SIZE", size.to_string()),
            ("MPI_LOCALNRANKS", local_size.to_string()),
            ("MPI_LOCALRANKID", local_rank.to_string()),
            ("OMPI_COMM_WORLD_RANK", rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", size.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", local_rank.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", local_size.to_string()),
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", size.to_string()),
            ("LOCAL_RANK", local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", local_size.to_string()),
            (
                "MASTER_ADDR",
                given("MASTER_ADDR").unwrap_or_else(|| self.master_address(group).to_owned()),
            ),
            (
                "MASTER_PORT",
                given("MASTER_PORT").unwrap_or_else(|| master_port.to_string()),
            ),
            ("GFORTRAN_UNBUFFERED_PRECONNECTED", "y".to_owned()),
        ];
        if group.spawner.is_some() {
            variables.push(("PMI_SPAWNED", "1".to_owned()));
        }
        if let Some(host) = self.hosts.get(host.0 as usize) {
            let name = host.name.rsplit('@').next().unwrap_or(&host.name);
            // Newer Hydras have it, whatever they say about the network.
            variables.push(("PMI_HOSTNAME", name.to_owned()));
            match &self.network.rank_network {
                RankNetwork::HostName => {
                    variables.push(("MPIR_CVAR_CH3_INTERFACE_HOSTNAME", name.to_owned()));
                }
                RankNetwork::Interface(interface) => {
                    variables.push(("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE", interface.clone()));
                }
                RankNetwork::Unsaid => {}
            }
        }
        if let Some(count) = self.environment.gpus_per_rank {
            variables.push(("CUDA_VISIBLE_DEVICES", gpus(count, local_rank)));
        }
        if self.binding != Binding::Nowhere {
            // By which MPICH knows that trees of ranks which are near each other stay that.
            variables.push(("HYDRA_USER_PROVIDED_BINDING", "1".to_owned()));
        }
        variables
    }

    /// The variables that all ranks of a program get, with what counts last: those inherited, those of the
    /// job, those of the program.
    pub fn program_variables<'a>(
        &'a self,
        segment: &'a Segment,
    ) -> impl Iterator<Item = (&'a OsString, &'a OsString)> {
        let inherited = segment
            .inherited
            .as_ref()
            .unwrap_or(&self.environment.common.inherited);
        let inheritable = self.environment.inheritable.iter();
        inheritable
            .filter(|(name, _)| inherited.includes(name))
            .chain(&self.environment.common.variables)
            .chain(&segment.environment)
            .map(|(name, value)| (name, value))
    }
}

/// The numbers of a rank's graphics processors, as CUDA wants them; no processor has the number -1.
fn gpus(count: u16, local_rank: usize) -> String {
    let count = u64::from(count);
    let first = count.saturating_mul(local_rank as u64);
    match count {
        0 => "-1".to_owned(),
        _ => {
            let numbers: Vec<_> = (first..first.saturating_add(count))
                .map(|number| number.to_string())
                .collect();
            numbers.join(",")
        }
    }
}

/// The part of the launcher's environment that ranks get: not what an outer job says about the launcher.
pub(crate) fn inheritable_environment(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    let belongs_to_outer_job = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"PMI_")
            || name.starts_with(b"MPI_LOCAL")
            || name == b"HYDI_CONTROL_FD"
            // What Open MPI's launcher and PMIx servers tell their ranks; the settings of users stay.
            || name.starts_with(b"OMPI_COMM_WORLD_")
            || name.starts_with(b"OMPI_MCA_orte_")
            || name.starts_with(b"OMPI_MCA_ess")
            || name == b"OMPI_MCA_pmix"
            || (name.starts_with(b"PMIX_") && !name.starts_with(b"PMIX_MCA_"))
            || name.starts_with(b"FLUX_JOB_")
            || name.starts_with(b"FLUX_PMI_")
    };
    environment
        .into_iter()
        .filter(|(name, _)| !belongs_to_outer_job(name))
        .collect()
}

#[cfg(test)]
mod tests;
