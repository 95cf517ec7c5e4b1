//! Whole jobs over the same machines as real ones: programs that speak PMI and spawn others, with every order of events
//! and everything that can happen drawn from a seed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use ropewalk_membership::Cause;
use ropewalk_names::Rank;

use crate::{
    event::JobEvent,
    group_plan::GroupPlan,
    host_agent::{self, HostAgent},
    job::OnFailure,
    protocol::{Down, Order, Plan, StartError, StartErrorKind},
    relay::{self, Relay},
    supervisor::{self, Supervisor},
    tree::NodeId,
    verdict::Verdict,
};
use fence_traffic::{Script, Traffic};
use links::Links;
use memory::Memory;
use script::wanted;

const SIGKILL: i32 = 9;
/// Far more than any of these jobs takes.
const STEPS_MAX: u32 = 200_000;

/// SplitMix64: enough for drawing faults.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// A process of the job: what it still says, each line after the answer to the one before.
struct Process {
    node: NodeId,
    script: VecDeque<Vec<u8>>,
    is_waiting: bool,
    dies_of: Option<i32>,
    /// Whose key it asked for.
    wanted: Option<Rank>,
    has_failed_fence: bool,
}

/// A death that somebody beside it in the tree will see.
enum Sight {
    /// The first sees the death of the second, right below it.
    Child(NodeId, NodeId),
    /// The second sees the death of the first, above it.
    Parent(NodeId, NodeId),
}

struct Node {
    relay: Relay,
    mind: HostAgent,
}

struct World {
    random: Random,
    now: Duration,
    plan: Plan,
    groups: Vec<GroupPlan>,
    supervisor: Supervisor,
    root: Relay,
    nodes: BTreeMap<NodeId, Node>,
    connecting: Vec<NodeId>,
    /// In jobs that adopt; elsewhere all see it at once.
    sights: Vec<Sight>,
    /// Of agents that were adopted.
    parents: BTreeMap<NodeId, NodeId>,
    adoptions: u32,
    cuts: u32,
    exited_well: BTreeSet<Rank>,
    on_failure: OnFailure,
    links: Links,
    processes: BTreeMap<Rank, Process>,
    kills_left: u32,
    agent_deaths_left: u32,
    cuts_left: u32,
    /// After so many deliveries one is forgotten, to see that this is found.
    forgotten_left: Option<u32>,
    has_forgotten: bool,
    spawns_answered: u32,
    verdict: Option<Verdict>,
    /// What programs do; drawn if `None`.
    script: Option<Script>,
    fence_traffic: BTreeMap<(NodeId, NodeId), Traffic>,
    memory: Memory,
}

/// What may go wrong in a run.
#[derive(Clone, Copy, Debug)]
struct Faults {
    kills: u32,
    agent_deaths: u32,
    cuts: u32,
    forgets_after: Option<u32>,
    on_failure: OnFailure,
}

impl World {
    fn run(&mut self) -> (Verdict, Counts) {
        self.root.start(self.now);
        self.settle();
        for _ in 0..STEPS_MAX {
            if self.verdict.is_some() && self.is_quiet() {
                assert!(self.processes.is_empty(), "processes are left");
                let counts = Counts {
                    spawns: self.spawns_answered,
                    inherited: self.memory.inherited(),
                    adoptions: self.adoptions,
                    cuts: self.cuts,
                    has_forgotten: self.has_forgotten,
                };
                return (self.verdict.take().unwrap(), counts);
            }
            self.step();
            self.settle();
        }
        panic!("the job does not end");
    }

    fn is_quiet(&self) -> bool {
        self.links.is_quiet()
            && self.nodes.values().all(|node| !node.mind.is_spawning())
            && self.processes.is_empty()
    }

    /// Does one of the things that can happen now.
    fn step(&mut self) {
        let links = self.links.busy();
        let starting = self.nodes.iter().filter(|(_, node)| node.mind.is_spawning());
        let starting: Vec<_> = starting.map(|(&node, _)| node).collect();
        let able = |process: &Process| !process.is_waiting || process.dies_of.is_some();
        let acting = self.processes.iter().filter(|(_, process)| able(process));
        let acting: Vec<_> = acting.map(|(&rank, _)| rank).collect();
        let victims: Vec<_> = self.processes.keys().copied().collect();
        let agents: Vec<_> = self.nodes.keys().copied().collect();
        let standing = self.links.standing();
        let kinds = [
            3 * links.len(),
            self.connecting.len(),
            starting.len(),
            2 * acting.len(),
            self.sights.len(),
            self.links.cut().len(),
            usize::from(self.kills_left > 0 && !victims.is_empty()),
            usize::from(self.agent_deaths_left > 0 && !agents.is_empty()),
            usize::from(self.cuts_left > 0) * standing.len(),
        ];
        let all: usize = kinds.iter().sum();
        let harmless: usize = kinds[..6].iter().sum();
        if harmless == 0 {
            return self.advance_clock();
        }
        // Faults are rare, so that they strike everywhere.
        let end = if self.random.below(20) == 0 { all } else { harmless };
        let mut drawn = self.random.below(end);
        let kind = kinds.iter().position(|&count| match drawn < count {
            true => true,
            false => {
                drawn -= count;
                false
            }
        });
        match kind {
            Some(0) => self.deliver(links[drawn / 3]),
            Some(1) => {
                let node = self.connecting.remove(drawn);
                self.connect(node);
            }
            Some(2) => self.start_next(starting[drawn]),
            Some(3) => self.act(acting[drawn / 2]),
            Some(4) => {
                let sight = self.sights.remove(drawn);
                self.see(sight);
            }
            Some(5) => self.links.connect_again(drawn),
            Some(6) => {
                self.kills_left -= 1;
                let victim = victims[self.random.below(victims.len())];
                self.processes.get_mut(&victim).unwrap().dies_of = Some(SIGKILL);
            }
            Some(7) => {
                self.agent_deaths_left -= 1;
                let agent = agents[self.random.below(agents.len())];
                self.lose(agent);
            }
            _ => {
                self.cuts_left -= 1;
                self.cuts += 1;
                self.links.lose_connection(standing[drawn]);
            }
        }
    }

    fn advance_clock(&mut self) {
        let relays = self.nodes.values().filter_map(|node| node.relay.deadline());
        let deadlines = relays
            .chain(self.root.deadline())
            .chain(self.supervisor.deadline());
        let next = deadlines.min();
        let next = next.unwrap_or_else(|| panic!("everybody waits for ever: {:?}", self.supervisor));
        self.now = self.now.max(next);
        self.supervisor.handle_timeout(self.now);
        self.root.handle_timeout(self.now);
        for node in self.nodes.values_mut() {
            node.relay.handle_timeout(self.now);
        }
    }

    fn connect(&mut self, id: NodeId) {
        let host = id.host().unwrap();
        let start = self.plan.start(host);
        let mut node = Node {
            relay: Relay::of(&self.plan, id),
            mind: HostAgent::new(start, "tcp://127.0.0.1:1".parse().unwrap(), u64::MAX),
        };
        node.relay.start(self.now);
        self.nodes.insert(id, node);
        let parent = self.parent(id);
        if parent == NodeId::ROOT || self.nodes.contains_key(&parent) {
            self.relay(parent).handle_connected(id);
        } else {
            self.relay(id).handle_parent_lost(SIGKILL);
        }
    }

    fn parent(&self, node: NodeId) -> NodeId {
        let adopted = self.parents.get(&node).copied();
        adopted.or(self.plan.tree().parent(node)).unwrap()
    }

    fn relay(&mut self, node: NodeId) -> &mut Relay {
        match self.nodes.get_mut(&node) {
            Some(node) => &mut node.relay,
            None => &mut self.root,
        }
    }

    fn start_next(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        let Some(rank) = node.mind.poll_spawn() else {
            return;
        };
        let group = self.groups.iter().find(|group| group.has(rank)).unwrap();
        let program = &group.program_of(rank).unwrap().1.segment.program;
        if program == "missing" {
            let error = StartError {
                kind: StartErrorKind::NotFound,
                reason: "not there".to_owned(),
            };
            node.mind.handle_not_spawned(rank, error);
            return;
        }
        node.mind.handle_spawned(rank, 100 + rank.0);
        self.memory.begin(rank, &mut node.mind);
        let (group, place) = (group.clone(), rank.0 - group.first.0);
        let process = Process {
            node: id,
            script: self.script(&group, place),
            is_waiting: false,
            dies_of: None,
            wanted: None,
            has_failed_fence: false,
        };
        self.processes.insert(rank, process);
    }

    fn act(&mut self, rank: Rank) {
        let process = self.processes.get_mut(&rank).unwrap();
        let node = process.node;
        let cause = match (process.dies_of, process.script.pop_front()) {
            (Some(signal), _) => Cause::Signalled(signal),
            (None, Some(line)) => {
                process.is_waiting = true;
                process.wanted = wanted(&line).map(|place| {
                    let group = self.groups.iter().find(|group| group.has(rank)).unwrap();
                    Rank(group.first.0 + place)
                });
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.mind.handle_pmi(rank, &line);
                }
                return;
            }
            (None, None) => {
                self.exited_well.insert(rank);
                Cause::Exited(0)
            }
        };
        self.processes.remove(&rank);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.mind.handle_exit(rank, cause, None, 0);
        }
    }

    /// An agent is gone, and with it all that is below it, if that is not adopted.
    fn lose(&mut self, node: NodeId) {
        self.memory.handle_agent_lost();
        if self.plan.adopts() {
            self.sights.push(Sight::Child(self.parent(node), node));
            return self.remove_one(node);
        }
        self.remove(node);
        let parent = self.plan.tree().parent(node).unwrap();
        self.relay(parent).handle_child_lost(node, "died".to_owned());
    }

    fn remove(&mut self, node: NodeId) {
        let below = self.plan.tree().hosts_below(node);
        for below in below.into_iter().map(NodeId::of) {
            self.nodes.remove(&below);
            self.connecting.retain(|&connecting| connecting != below);
            self.links.remove(below, true);
            self.processes.retain(|_, process| process.node != below);
        }
    }

    /// An agent is gone, and what it had sent is on its way.
    fn remove_one(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.connecting.retain(|&connecting| connecting != node);
        self.links.remove(node, false);
        self.processes.retain(|_, process| process.node != node);
        let orphans: Vec<_> = self
            .nodes
            .keys()
            .copied()
            .filter(|&id| self.parent(id) == node)
            .collect();
        let sights = orphans.into_iter().map(|orphan| Sight::Parent(node, orphan));
        self.sights.extend(sights);
    }

    /// What had not come until then does not come any more.
    fn see(&mut self, sight: Sight) {
        match sight {
            Sight::Child(parent, node) => {
                self.links.end((node, parent));
                if parent == NodeId::ROOT || self.nodes.contains_key(&parent) {
                    self.relay(parent).handle_child_lost(node, "died".to_owned());
                }
            }
            Sight::Parent(parent, node) => {
                self.links.end((parent, node));
                if self.nodes.contains_key(&node) && self.parent(node) == parent {
                    self.relay(node).handle_parent_lost(SIGKILL);
                }
            }
        }
    }

    /// Does what the machines say until they say nothing.
    fn settle(&mut self) {
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            let ids: Vec<_> = self.nodes.keys().copied().collect();
            for id in ids {
                while let Some(action) = self.nodes.get_mut(&id).and_then(|node| node.mind.poll_action()) {
                    is_quiet = false;
                    self.perform(id, action);
                }
                while let Some(action) = self.nodes.get_mut(&id).and_then(|node| node.relay.poll_action()) {
                    is_quiet = false;
                    self.carry(id, action);
                }
                // An agent whose work is done goes.
                if self.nodes.get(&id).is_some_and(|node| node.relay.is_over()) {
                    self.check_that_memory_is_not_needed(id);
                    match self.plan.adopts() {
                        true => self.remove_one(id),
                        false => drop(self.nodes.remove(&id)),
                    }
                }
            }
            while let Some(action) = self.root.poll_action() {
                is_quiet = false;
                self.carry(NodeId::ROOT, action);
            }
            while let Some(action) = self.supervisor.poll_action() {
                is_quiet = false;
                match action {
                    supervisor::Action::AbandonAgents => self.root.abandon_all(),
                    supervisor::Action::AskNames(asker, question) => {
                        panic!("{asker:?} has names of its own: {question:?}")
                    }
                    supervisor::Action::Event(JobEvent::Finished(verdict)) => self.verdict = Some(verdict),
                    supervisor::Action::Event(_) => {}
                    supervisor::Action::Send(down) => {
                        if let Down::Group(group) = &down {
                            self.groups.push(GroupPlan::clone(group));
                        }
                        self.root.handle_down(down);
                    }
                    supervisor::Action::ReadHostFiles(wanted) => panic!("{wanted:?} names no file"),
                    supervisor::Action::SendPmi(child, down) => self.root.send_pmi(child, down),
                }
            }
        }
    }

    fn perform(&mut self, id: NodeId, action: host_agent::Action) {
        let node = self.nodes.get_mut(&id).unwrap();
        match action {
            host_agent::Action::Report(report) => node.relay.report(id.host().unwrap(), report),
            host_agent::Action::SendChild(child, down) => node.relay.send_pmi(child, down),
            host_agent::Action::SendPmi(rank, bytes) => {
                self.check_answer(rank, &bytes);
                if let Some(process) = self.processes.get_mut(&rank) {
                    assert!(process.is_waiting, "{rank:?} was answered twice");
                    process.is_waiting = false;
                    self.spawns_answered += u32::from(bytes.starts_with(b"cmd=spawn_result"));
                }
            }
            host_agent::Action::Signal(rank, signal) => {
                let is_first = rank.0 < self.plan.size;
                assert!(
                    self.on_failure.ends_job() || !is_first,
                    "{rank:?} was well and is ended"
                );
                if let Some(process) = self.processes.get_mut(&rank) {
                    process.dies_of = Some(signal);
                }
            }
            host_agent::Action::Sweep => node.mind.handle_swept(),
            host_agent::Action::Expose(rank, held) => self.memory.expose(id, rank, held, &mut node.mind),
            host_agent::Action::SendLink(to, message) => self.memory.hear(to, &message),
            // A connection is closed only after its last answer, or to a process that broke the protocol.
            host_agent::Action::ClosePmi(_) | host_agent::Action::Fence(_) => {}
            other => panic!("nobody asked for {other:?}"),
        }
    }

    /// Who has passed a fence has what all others put before it.
    fn check_answer(&mut self, rank: Rank, bytes: &[u8]) {
        let Some(process) = self.processes.get_mut(&rank) else {
            return;
        };
        let has = |part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
        if has("cmd=barrier_out") && has("rc=-1") {
            process.has_failed_fence = true;
            assert!(self.on_failure.ends_job(), "{rank:?} was left alone in a fence");
        }
        // A new process of a rank begins where others have gone on.
        let are_in_step = !matches!(self.on_failure, OnFailure::Respawn(_));
        if let Some(other) = process.wanted
            && has("rc=-1")
            && are_in_step
            && !process.has_failed_fence
        {
            let is_well = |other: &Process| other.dies_of.is_none();
            let is_there = self.processes.get(&other).is_some_and(is_well);
            let knows = is_there || self.exited_well.contains(&other);
            assert!(!knows, "{rank:?} has not what {other:?} put");
        }
    }

    fn carry(&mut self, id: NodeId, action: relay::Action) {
        let now = self.now;
        match action {
            relay::Action::Abandon(child) => {
                match self.plan.adopts() {
                    true => self.remove_one(child),
                    false => self.remove(child),
                }
                match self.nodes.get_mut(&id) {
                    Some(node) => node.mind.handle_child_lost(child),
                    None => self.supervisor.handle_child_lost(now, child),
                }
            }
            relay::Action::Local(down) => {
                let group = match &down {
                    Down::Group(group) => Some((self.plan.pmi_group(group, id), group.clone())),
                    _ => None,
                };
                let mind = &mut self.nodes.get_mut(&id).unwrap().mind;
                match (down, group) {
                    (Down::Cancel(group), _) => mind.handle_cancel(group),
                    (Down::Forget(group), _) => mind.handle_forget(group),
                    (Down::Group(_), Some((options, group))) => {
                        let ranks: Vec<_> = group.job_ranks(id.host().unwrap()).collect();
                        mind.handle_group(group.first, options, &ranks);
                    }
                    (Down::News(news), _) => mind.handle_news(news),
                    (Down::Order(Order::Pmi(down)) | Down::Pmi(down), _) => mind.handle_pmi_down(down),
                    (Down::Order(Order::ReleaseMemory), _) => mind.handle_released(),
                    (Down::Order(Order::Respawn { rank, incarnation }), _) => {
                        mind.handle_respawn(rank, incarnation)
                    }
                    (Down::Order(Order::Signal { rank, signal }), _) => mind.handle_signal(rank, signal),
                    (Down::Order(Order::Spawned { id, result }), _) => mind.handle_spawn_answer(id, result),
                    _ => {}
                }
            }
            relay::Action::LocalPmi(child, up) => match self.nodes.get_mut(&id) {
                Some(node) => node.mind.handle_pmi_up(child, up),
                None => self.supervisor.handle_pmi(now, child, up),
            },
            relay::Action::SendChild(child, down) => {
                if self.is_there(id) && self.is_there(child) {
                    self.count_down(id, child, &down);
                    self.links.send_down((id, child), down);
                }
            }
            relay::Action::Adopted => self.adoptions += 1,
            relay::Action::LoseParent => {}
            relay::Action::SeekLauncher => drop(self.parents.insert(id, NodeId::ROOT)),
            relay::Action::SendParent(up) => match id {
                NodeId::ROOT => self.supervisor.handle_up(now, up),
                _ => {
                    let parent = self.parent(id);
                    if self.is_there(id) && self.is_there(parent) {
                        self.count_up(id, parent, &up);
                        self.links.send_up((id, parent), up);
                    }
                }
            },
            relay::Action::StartChild(child) => self.connecting.push(child),
        }
    }

    fn is_there(&self, node: NodeId) -> bool {
        node == NodeId::ROOT || self.nodes.contains_key(&node)
    }
}

/// What happened in a run, or in many.
#[derive(Debug, Default)]
struct Counts {
    spawns: u32,
    inherited: u32,
    adoptions: u32,
    cuts: u32,
    has_forgotten: bool,
}

mod fence_traffic;
mod links;
mod memory;
mod script;
mod setting;
mod tests;
