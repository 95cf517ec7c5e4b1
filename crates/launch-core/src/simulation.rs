//! The start of a large job in virtual time, over the same machines as a real one.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::{HostId, Rank};

use crate::{
    job::JobSpec,
    protocol::{Report, Up},
    relay::{Action, Relay},
    tree::{NodeId, Tree},
};

/// What things cost in a simulated start. Each node does one thing at a time.
#[derive(Clone, Copy, Debug)]
pub struct StartCosts {
    /// A node's own time to start the command that starts an agent elsewhere.
    pub start_agent: Duration,
    /// How long it then takes until that agent has connected, with which its node above is not busy.
    pub login: Duration,
    /// An agent's own time to start a rank.
    pub start_rank: Duration,
    /// How long a message is under way.
    pub latency: Duration,
    /// A node's own time for a message.
    pub message: Duration,
    /// A node's own time for each report in it.
    pub report: Duration,
}

/// When things were done, since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTimes {
    /// The last agent had connected.
    pub agents: Duration,
    /// The last rank ran.
    pub ranks: Duration,
    /// The launcher knew of all.
    pub known: Duration,
}

/// Starts so many ranks on each of `hosts` hosts in a tree of this arity. A star is a tree whose arity is the number of
/// hosts.
pub fn simulate_start(hosts: u32, ranks_per_host: u32, arity: u32, costs: &StartCosts) -> StartTimes {
    let tree = Tree::new(hosts, arity);
    let mut start = Start {
        tree,
        costs: *costs,
        ranks_per_host,
        queue: BTreeMap::new(),
        number: 0,
        nodes: BTreeMap::new(),
        known: 0,
        times: StartTimes {
            agents: Duration::ZERO,
            ranks: Duration::ZERO,
            known: Duration::ZERO,
        },
    };
    start.begin(Duration::ZERO, NodeId::ROOT);
    while let Some(((at, _), event)) = start.queue.pop_first() {
        start.step(at, event);
    }
    debug_assert_eq!(start.known, u64::from(hosts) * u64::from(ranks_per_host));
    start.times
}

/// How many ranks an agent starts before it sends what it has to report.
const RANKS_PER_MESSAGE: u32 = 16;

enum Event {
    Connect(NodeId),
    /// An agent starts its ranks from this one on.
    Spawn(NodeId, u32),
    Up(NodeId, Vec<Up>),
}

struct Node {
    relay: Relay,
    free_at: Duration,
}

struct Start {
    tree: Tree,
    costs: StartCosts,
    ranks_per_host: u32,
    queue: BTreeMap<(Duration, u64), Event>,
    number: u64,
    nodes: BTreeMap<NodeId, Node>,
    known: u64,
    times: StartTimes,
}

impl Start {
    fn at(&mut self, at: Duration, event: Event) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
    }

    fn begin(&mut self, now: Duration, node: NodeId) {
        let mut relay = Relay::new(self.tree, node, JobSpec::DETECT, 10 * JobSpec::DETECT);
        relay.start(now);
        self.nodes.insert(node, Node { relay, free_at: now });
        self.perform(node);
        if node != NodeId::ROOT {
            let free_at = self.nodes[&node].free_at;
            self.at(free_at, Event::Spawn(node, 0));
        }
    }

    fn step(&mut self, now: Duration, event: Event) {
        match event {
            Event::Connect(node) => {
                self.times.agents = self.times.agents.max(now);
                self.begin(now, node);
                if let Some(parent) = self.tree.parent(node) {
                    self.spend(parent, now, self.costs.message);
                    self.with(parent, |relay| relay.handle_connected(node));
                }
            }
            Event::Spawn(node, first) => {
                let count = RANKS_PER_MESSAGE.min(self.ranks_per_host - first);
                let done = self.spend(node, now, self.costs.start_rank * count + self.costs.message);
                self.times.ranks = self.times.ranks.max(done);
                let host = node.host().unwrap_or(HostId(0));
                self.with(node, |relay| {
                    for rank in first..first + count {
                        let rank = Rank(host.0 * 1024 + rank);
                        relay.report(host, Report::Started { rank, pid: 1 });
                    }
                });
                if first + count < self.ranks_per_host {
                    self.at(done, Event::Spawn(node, first + count));
                }
            }
            Event::Up(child, ups) => {
                let Some(parent) = self.tree.parent(child) else {
                    return;
                };
                self.spend(
                    parent,
                    now,
                    self.costs.message + self.costs.report * ups.len() as u32,
                );
                self.with(parent, |relay| {
                    for up in ups {
                        relay.handle_up(child, up);
                    }
                });
            }
        }
    }

    /// Has a node busy for so long; returns until when.
    fn spend(&mut self, node: NodeId, now: Duration, time: Duration) -> Duration {
        self.nodes.get_mut(&node).map_or(now, |node| {
            node.free_at = node.free_at.max(now) + time;
            node.free_at
        })
    }

    fn with(&mut self, node: NodeId, act: impl FnOnce(&mut Relay)) {
        if let Some(known) = self.nodes.get_mut(&node) {
            act(&mut known.relay);
            self.perform(node);
        }
    }

    fn perform(&mut self, node: NodeId) {
        let mut ups = Vec::new();
        while let Some(action) = self
            .nodes
            .get_mut(&node)
            .and_then(|node| node.relay.poll_action())
        {
            match action {
                Action::StartChild(child) => {
                    let started = self.spend(node, Duration::ZERO, self.costs.start_agent);
                    self.at(started + self.costs.login, Event::Connect(child));
                }
                Action::SendParent(up) => ups.push(up),
                // Nothing else happens while all goes well.
                _ => {}
            }
        }
        let free_at = self.nodes[&node].free_at;
        if node == NodeId::ROOT {
            self.known += ups.len() as u64;
            if !ups.is_empty() {
                self.times.known = free_at;
            }
        } else if !ups.is_empty() {
            self.at(free_at + self.costs.latency, Event::Up(node, ups));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: StartCosts = StartCosts {
        start_agent: Duration::from_millis(1),
        login: Duration::from_millis(100),
        start_rank: Duration::from_micros(400),
        latency: Duration::from_micros(50),
        message: Duration::from_micros(20),
        report: Duration::from_nanos(300),
    };

    /// Every rank is started and known, also where the tree is uneven; the time is that of the costs alone.
    #[test]
    fn one_host_costs_what_its_parts_cost() {
        let times = simulate_start(1, 2, 16, &COSTS);
        let agents = COSTS.start_agent + COSTS.login;
        let ranks = agents + 2 * COSTS.start_rank + COSTS.message;
        let known = ranks + COSTS.latency + COSTS.message + 2 * COSTS.report;
        assert_eq!(times, StartTimes { agents, ranks, known });
        simulate_start(37, 33, 3, &COSTS);
    }

    /// On many hosts a tree is faster than a star, which starts one agent after the other.
    #[test]
    fn a_tree_beats_a_star() {
        let tree = simulate_start(1000, 10, 32, &COSTS);
        let star = simulate_start(1000, 10, 1000, &COSTS);
        assert!(tree.ranks * 2 < star.ranks, "{tree:?} {star:?}");
    }
}
