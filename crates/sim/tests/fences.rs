//! The cost of a fence, whatever the order of events: messages and bytes on each way between two nodes of the tree.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use ropewalk_launch_core::{
    OnFailure,
    tree::{NodeId, Tree},
};
use ropewalk_sim::launch::{Faults, Programs, Setting, Traffic, run};

const FENCES: u64 = 3;
const VALUE_SIZE: usize = 200;
/// A rank's part of a fence: key, value and their lengths.
const PAIR_SIZE_MAX: u64 = VALUE_SIZE as u64 + 16;
/// The rest of a message: names, numbers, and a set of ranks that are one range.
const HEAD_SIZE_MAX: u64 = 64;

/// The fences of a job of so many hosts, each with so many ranks.
fn fences(hosts: u32, ranks_per_host: u32, arity: u32, on_failure: OnFailure) -> Fences {
    let drawn = Setting::drawn(hosts.into(), on_failure, Faults::default());
    let mut setting = Setting::start(hosts, hosts * ranks_per_host, arity, drawn.costs);
    setting.spec.reactions.on_failure = on_failure;
    setting.programs = Programs::Fences {
        fences: FENCES as u32,
        value: VALUE_SIZE,
    };
    setting.is_irregular = true;
    let outcome = run(&setting).unwrap();
    assert!(outcome.verdict.unwrap().is_success());
    Fences {
        tree: Tree::new(hosts, arity),
        ranks_per_host,
        traffic: outcome.fences,
    }
}

struct Fences {
    tree: Tree,
    ranks_per_host: u32,
    traffic: BTreeMap<(NodeId, NodeId), Traffic>,
}

impl Fences {
    /// Checks for each way how many messages went along it, up as this says of the number of hosts below, and once
    /// down; and that they were not larger than what is put by those below, or by all. Returns how many messages
    /// there were.
    fn check(&self, hosts: u32, up_messages: impl Fn(u64) -> u64) -> u64 {
        let mut below = BTreeMap::<NodeId, u64>::new();
        for node in (1..=hosts).map(NodeId) {
            for above in std::iter::successors(Some(node), |node| self.tree.parent(*node)) {
                *below.entry(above).or_default() += 1;
            }
        }
        let mut messages = 0;
        for node in (1..=hosts).map(NodeId) {
            let parent = self.tree.parent(node).unwrap();
            let below = below[&node];
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

/// "Keys put before a fence travel up the tree once, merged, and come down once": each agent sends one message up and
/// one to each right below it, whatever the number of hosts and ranks, and all data passes each way once.
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

/// Where agents are adopted they merge nothing, so that no host's data is lost with another: what each host says goes
/// all the way to the launcher, a message for each host below. The bytes are those of the data still, and the way
/// down is as elsewhere. At 512 hosts and an arity of 32 that is 992 messages up, where it is 512 elsewhere; those
/// that wait for the same link at the same time are sent as one, which is not counted here.
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
