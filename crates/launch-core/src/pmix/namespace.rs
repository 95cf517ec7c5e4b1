//! A process group as a PMIx server knows it.

use ropewalk_names::HostId;
use serde::{Deserialize, Serialize};

use super::Process;
use crate::{group_plan::GroupPlan, protocol::Plan};

/// Under this key the key-value space of a spawned group has the rank of its spawner.
pub const PARENT_KEY: &str = "ropewalk_parent";

/// A process group, its nodes and its programs: what the PMIx standard (4.1, section 17.2.3) wants a launcher to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// PMI's number of it.
    pub group: u32,
    /// The rank in the job of its first process.
    pub offset: u32,
    /// How many processes it has.
    pub size: u32,
    /// How many processes there could be in the job.
    pub universe_size: u32,
    /// The nodes that have any of it.
    pub nodes: Vec<Node>,
    /// The one of this host, by its place among [`nodes`](Self::nodes); `None` if nothing of the group is here.
    pub own_node: Option<usize>,
    /// The programs, in the order of the ranks.
    pub programs: Vec<Program>,
    /// The process that spawned it.
    pub parent: Option<Process>,
}

/// A host with processes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The number of the host in the job.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The ranks of its processes, in ascending order.
    pub ranks: Vec<u32>,
}

/// A program of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The rank of its first process.
    pub first: u32,
    /// How many processes run it.
    pub size: u32,
    /// Its name, as the user gave it.
    pub name: String,
}

impl Namespace {
    /// The ranks of this host.
    pub fn local_ranks(&self) -> &[u32] {
        self.own_node.map_or(&[], |node| &self.nodes[node].ranks)
    }

    /// The number of the program that a rank runs, and the program.
    pub fn program_of(&self, rank: u32) -> Option<(u32, &Program)> {
        let is_in = |program: &Program| (program.first..program.first + program.size).contains(&rank);
        (0..).zip(&self.programs).find(|(_, program)| is_in(program))
    }
}

impl Plan {
    /// A process group as the PMIx server of a host is told. Names of hosts are those that the job has; `own_name` is
    /// the one of this host if the job has no other.
    pub fn namespace(&self, group: &GroupPlan, host: HostId, own_name: &str) -> Namespace {
        let mut nodes = Vec::new();
        let mut own_node = None;
        for (id, known) in (0..).zip(&self.hosts) {
            let ranks: Vec<_> = group
                .job_ranks(HostId(id))
                .map(|rank| rank.0 - group.first.0)
                .collect();
            if ranks.is_empty() {
                continue;
            }
            if id == host.0 {
                own_node = Some(nodes.len());
            }
            let name = match self.hosts.len() {
                1 => own_name,
                _ => known.name.rsplit('@').next().unwrap_or(&known.name),
            };
            nodes.push(Node {
                id,
                name: name.to_owned(),
                ranks,
            });
        }
        // Several agents on one host, as tests have them, must not be taken for one node.
        for index in 1..nodes.len() {
            let (before, rest) = nodes.split_at_mut(index);
            if before.iter().any(|node| node.name == rest[0].name) {
                rest[0].name = format!("{}-{index}", rest[0].name);
            }
        }
        let mut first = 0;
        let programs = group.programs.iter().map(|program| {
            let size = program.segment.ranks;
            let name = program.segment.program.to_string_lossy().into_owned();
            let program = Program { first, size, name };
            first += size;
            program
        });
        let parent = group.preput.iter().find(|(key, _)| key == PARENT_KEY);
        let parent_rank = parent.and_then(|(_, rank)| std::str::from_utf8(rank).ok()?.parse().ok());
        Namespace {
            name: self.kvsname(group.id),
            group: group.id,
            offset: group.first.0,
            size: group.size,
            universe_size: self.pmi.universe_size.unwrap_or(self.size).max(group.size),
            nodes,
            own_node,
            programs: programs.collect(),
            parent: group.spawner.map(|spawner| Process {
                namespace: self.kvsname(spawner),
                rank: Some(parent_rank.unwrap_or(0)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_names::JobId;

    use super::*;
    use crate::{
        JobSpec, Segment,
        hosts::parse_hosts,
        plan::{Surroundings, plan},
    };

    fn namespace(hosts: &str, host: u32) -> Namespace {
        let program = Segment {
            ranks: 3,
            ..Segment::new("program")
        };
        let spec = JobSpec {
            hosts: parse_hosts(hosts).unwrap(),
            ..JobSpec::new("agent", program)
        };
        let around = Surroundings {
            is_port_free: |_| true,
            job: JobId([1; 16]),
            host_name: "own".to_owned(),
            processors: 2,
            environment: vec![],
            working_directory: None,
        };
        let plan = plan(&spec, around).unwrap();
        plan.namespace(&plan.first_group(), HostId(host), "here")
    }

    /// Each host is told of all nodes, and which one it is.
    #[test]
    fn nodes_have_their_ranks() {
        let namespace = namespace("user@a:2,b:2", 1);
        let nodes: Vec<_> = namespace
            .nodes
            .iter()
            .map(|node| (node.name.as_str(), node.ranks.clone()))
            .collect();
        assert_eq!(nodes, [("a", vec![0, 1]), ("b", vec![2])]);
        assert_eq!(namespace.local_ranks(), [2]);
        assert_eq!(namespace.program_of(2).map(|(number, _)| number), Some(0));
        assert_eq!(namespace.program_of(3), None);
    }

    /// A host that is alone has the name that it has itself.
    #[test]
    fn a_single_host_has_its_own_name() {
        let namespace = namespace("localhost:3", 0);
        assert_eq!(namespace.nodes[0].name, "here");
        assert_eq!(namespace.local_ranks(), [0, 1, 2]);
    }
}
