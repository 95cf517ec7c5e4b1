//! What a fence costs, whatever the order of events: messages and bytes on each way between two nodes of the tree.

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;
use serde::Serialize;

use super::*;
use crate::{
    hosts::parse_hosts,
    job::JobSpec,
    protocol::{Report, Up},
    tree::Tree,
};

/// What a process says, by the name of its key-value space and its place.
pub(super) type Script = fn(&str, u32) -> VecDeque<Vec<u8>>;

/// What was sent of fences from one node to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    messages: u64,
    bytes: u64,
}

impl World {
    /// Counts what is sent to the node above if it is of a fence. At the end of a job agents may find the one above them gone before
    /// they heard that they may go too, and say again to the launcher what it has, and it to them: that is no part of a
    /// fence.
    pub(super) fn count_up(&mut self, from: NodeId, to: NodeId, up: &Up) {
        let origin = NodeId::of(up.host);
        let is_of_fence = matches!(
            up.report,
            Report::Pmi(pmi::Up::Fence { .. } | pmi::Up::Pairs { .. })
        );
        if is_of_fence && self.processes.values().any(|process| process.node == origin) {
            self.count((from, to), up);
        }
    }

    /// Counts what is sent to a node below, in the same way.
    pub(super) fn count_down(&mut self, from: NodeId, to: NodeId, down: &Down) {
        let is_of_fence = match down {
            Down::Pmi(down) | Down::To(_, Order::Pmi(down)) => {
                matches!(down, pmi::Down::Fence { .. } | pmi::Down::Pairs { .. })
            }
            _ => false,
        };
        if is_of_fence && !self.parents.contains_key(&to) {
            self.count((from, to), down);
        }
    }

    fn count(&mut self, way: (NodeId, NodeId), message: &impl Serialize) {
        let traffic = self.fence_traffic.entry(way).or_default();
        traffic.messages += 1;
        traffic.bytes += postcard::to_allocvec(message).unwrap().len() as u64;
    }
}

const FENCES: u64 = 3;
const VALUE_SIZE: usize = 200;
/// What is sent for a rank and a fence: key, value and their lengths.
const PAIR_SIZE_MAX: u64 = VALUE_SIZE as u64 + 16;
/// What else is in a message: names, numbers, and a set of ranks that are one range.
const HEAD_SIZE_MAX: u64 = 64;

/// As MPICH's programs do: put something, meet, and do that again.
fn put_and_meet(kvsname: &str, place: u32) -> VecDeque<Vec<u8>> {
    let mut script = VecDeque::from([b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec()]);
    for fence in 0..FENCES {
        let value = "v".repeat(VALUE_SIZE);
        script
            .push_back(format!("cmd=put kvsname={kvsname} key={place}.{fence} value={value}\n").into_bytes());
        script.push_back(b"cmd=barrier_in\n".to_vec());
    }
    script.push_back(b"cmd=finalize\n".to_vec());
    script
}

/// What fences cost in a job of so many hosts, each with so many ranks.
fn fences(hosts: u32, ranks_per_host: u32, arity: u32, on_failure: OnFailure) -> Fences {
    let names: Vec<_> = (0..hosts)
        .map(|host| format!("h{host}:{ranks_per_host}"))
        .collect();
    let spec = JobSpec {
        ranks: hosts * ranks_per_host,
        hosts: parse_hosts(&names.join(",")).unwrap(),
        arity,
        on_failure,
        ..JobSpec::new("agent", "program")
    };
    let mut world = World::of(&spec, Random(u64::from(hosts)));
    world.script = Some(put_and_meet);
    let (verdict, _) = world.run();
    assert!(verdict.is_success(), "{verdict}");
    Fences {
        tree: world.plan.tree(),
        ranks_per_host,
        traffic: world.fence_traffic,
    }
}

/// The fences of a job.
struct Fences {
    tree: Tree,
    ranks_per_host: u32,
    traffic: BTreeMap<(NodeId, NodeId), Traffic>,
}

impl Fences {
    /// Checks for each way how many messages went along it, up as this says of the number of hosts below, and once down; and
    /// that they were not larger than what is put by those below, or by all. Returns how many messages there were.
    fn check(&self, hosts: u32, up_messages: impl Fn(u64) -> u64) -> u64 {
        let mut messages = 0;
        for node in (0..hosts).map(HostId).map(NodeId::of) {
            let parent = self.tree.parent(node).unwrap();
            let below = self.tree.hosts_below(node).len() as u64;
            let [up, down] = [(node, parent), (parent, node)].map(|way| self.traffic[&way]);
            assert_eq!(
                up.messages,
                FENCES * up_messages(below),
                "from {node:?}, with {below} hosts"
            );
            assert_eq!(down.messages, FENCES, "to {node:?} of {hosts}");
            for (traffic, hosts) in [(up, below), (down, u64::from(hosts))] {
                let pairs = FENCES * hosts * u64::from(self.ranks_per_host);
                let least = pairs * VALUE_SIZE as u64;
                let most = pairs * PAIR_SIZE_MAX + traffic.messages * HEAD_SIZE_MAX;
                assert!(
                    (least..=most).contains(&traffic.bytes),
                    "{traffic:?} at {node:?}, not {least} to {most}"
                );
            }
            messages += up.messages + down.messages;
        }
        for (from, to) in self.traffic.keys() {
            let are_neighbours = self.tree.parent(*from) == Some(*to) || self.tree.parent(*to) == Some(*from);
            assert!(are_neighbours, "{from:?} speaks to {to:?}");
        }
        messages
    }
}

/// "Keys put before a fence travel up the tree once, merged, and come down once": each agent sends one message up and one to each
/// right below it, whatever the number of hosts and ranks, and all data passes each way once.
#[test]
fn a_fence_is_one_message_up_and_one_down() {
    for (hosts, ranks_per_host, arities) in [(8, 4, &[1, 2, 32][..]), (64, 2, &[2, 8]), (512, 1, &[32])] {
        for &arity in arities {
            let fences = fences(hosts, ranks_per_host, arity, OnFailure::Abort);
            let messages = fences.check(hosts, |_| 1);
            assert_eq!(messages, FENCES * 2 * u64::from(hosts));
        }
    }
}

/// Where agents are adopted they merge nothing, so that no host's data is lost with another: what each host says goes all the way
/// to the launcher, a message for each host below. The bytes are those of the data still, and the way down is as elsewhere. At
/// 512 hosts and an arity of 32 that is 992 messages up, where it is 512 elsewhere; those that wait for the same link at the
/// same time are sent as one (see [`Link`](crate::link::Link)), which is not counted here.
#[test]
fn where_agents_are_adopted_a_fence_is_a_message_for_each_host_below() {
    for (hosts, arity, ups) in [(8, 1, 36), (64, 2, 270), (64, 8, 120), (512, 32, 992)] {
        let fences = fences(hosts, 1, arity, OnFailure::Continue);
        let messages = fences.check(hosts, |below| below);
        assert_eq!(
            messages / FENCES - u64::from(hosts),
            ups,
            "{hosts} hosts, arity {arity}"
        );
    }
}
