//! Whole jobs over the same machines as real ones: programs that speak PMI and spawn others, with every order of events
//! and everything that can happen drawn from a seed.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ropewalk_fabric::JobKey;
use ropewalk_group::{Cause, JobId, Rank};

use crate::{
    event::JobEvent,
    group_plan::GroupPlan,
    host_agent::{self, HostAgent},
    hosts::parse_hosts,
    job::{JobSpec, OnFailure, RespawnPolicy},
    plan::{self, Surroundings},
    protocol::{Down, Order, Plan, StartError, StartErrorKind, Up},
    relay::{self, Relay},
    supervisor::{self, Supervisor},
    tree::NodeId,
    verdict::{Failure, Verdict},
};

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

enum Message {
    Up(Up),
    Down(Down),
}

/// A process of the job: what it still says, each line after the answer to the one before.
struct Process {
    node: NodeId,
    script: VecDeque<Vec<u8>>,
    is_waiting: bool,
    dies_of: Option<i32>,
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
    links: BTreeMap<(NodeId, NodeId), VecDeque<Message>>,
    processes: BTreeMap<Rank, Process>,
    kills_left: u32,
    agent_deaths_left: u32,
    spawns_answered: u32,
    verdict: Option<Verdict>,
}

/// What may go wrong in a run.
#[derive(Clone, Copy, Debug)]
struct Faults {
    kills: u32,
    agent_deaths: u32,
    on_failure: OnFailure,
}

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random(seed);
        let hosts = ["a", "a,b", "a,b,c", "a:2,b,c,d,e"][random.below(4)];
        let spec = JobSpec {
            ranks: 1 + random.below(6) as u32,
            hosts: parse_hosts(hosts).unwrap(),
            arity: 1 + random.below(3) as u32,
            on_failure: faults.on_failure,
            ..JobSpec::new("agent", "program")
        };
        let around = Surroundings {
            job: JobId([0; 16]),
            host_name: "a".to_owned(),
            processors: 1,
            environment: vec![],
            working_directory: None,
        };
        let plan = plan::plan(&spec, around).unwrap();
        Self {
            random,
            now: Duration::ZERO,
            groups: vec![plan.first_group()],
            supervisor: Supervisor::new(&plan, faults.on_failure, None),
            root: Relay::new(plan.tree(), NodeId::ROOT, plan.detect),
            plan,
            nodes: BTreeMap::new(),
            connecting: Vec::new(),
            links: BTreeMap::new(),
            processes: BTreeMap::new(),
            kills_left: faults.kills,
            agent_deaths_left: faults.agent_deaths,
            spawns_answered: 0,
            verdict: None,
        }
    }

    fn run(mut self) -> (Verdict, u32) {
        self.root.start(self.now);
        self.settle();
        for _ in 0..STEPS_MAX {
            if self.verdict.is_some() && self.is_quiet() {
                assert!(self.processes.is_empty(), "processes are left");
                return (self.verdict.take().unwrap(), self.spawns_answered);
            }
            self.step();
            self.settle();
        }
        panic!("the job does not end");
    }

    fn is_quiet(&self) -> bool {
        self.links.values().all(VecDeque::is_empty)
            && self.nodes.values().all(|node| !node.mind.is_spawning())
            && self.processes.is_empty()
    }

    /// Does one of the things that can happen now.
    fn step(&mut self) {
        let links = self.links.iter().filter(|(_, queue)| !queue.is_empty());
        let links: Vec<_> = links.map(|(&link, _)| link).collect();
        let starting = self.nodes.iter().filter(|(_, node)| node.mind.is_spawning());
        let starting: Vec<_> = starting.map(|(&node, _)| node).collect();
        let able = |process: &Process| !process.is_waiting || process.dies_of.is_some();
        let acting = self.processes.iter().filter(|(_, process)| able(process));
        let acting: Vec<_> = acting.map(|(&rank, _)| rank).collect();
        let victims: Vec<_> = self.processes.keys().copied().collect();
        let agents: Vec<_> = self.nodes.keys().copied().collect();
        let kinds = [
            3 * links.len(),
            self.connecting.len(),
            starting.len(),
            2 * acting.len(),
            usize::from(self.kills_left > 0 && !victims.is_empty()),
            usize::from(self.agent_deaths_left > 0 && !agents.is_empty()),
        ];
        let all: usize = kinds.iter().sum();
        let harmless: usize = kinds[..4].iter().sum();
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
                self.kills_left -= 1;
                let victim = victims[self.random.below(victims.len())];
                self.processes.get_mut(&victim).unwrap().dies_of = Some(SIGKILL);
            }
            _ => {
                self.agent_deaths_left -= 1;
                let agent = agents[self.random.below(agents.len())];
                self.lose(agent);
            }
        }
    }

    fn advance_clock(&mut self) {
        let relays = self.nodes.values().filter_map(|node| node.relay.deadline());
        let deadlines = relays
            .chain(self.root.deadline())
            .chain(self.supervisor.deadline());
        let next = deadlines.min();
        self.now = next.unwrap_or_else(|| panic!("everybody waits for ever: {:?}", self.supervisor));
        self.supervisor.handle_timeout(self.now);
        self.root.handle_timeout(self.now);
        for node in self.nodes.values_mut() {
            node.relay.handle_timeout(self.now);
        }
    }

    fn connect(&mut self, id: NodeId) {
        let host = id.host().unwrap();
        let start = self.plan.start(host, JobKey::from_bytes([0; 32]));
        let mut node = Node {
            relay: Relay::new(self.plan.tree(), id, self.plan.detect),
            mind: HostAgent::new(start, "tcp://127.0.0.1:1".parse().unwrap(), 0),
        };
        node.relay.start(self.now);
        self.nodes.insert(id, node);
        let parent = self.plan.tree().parent(id).unwrap();
        self.relay(parent).handle_connected(id);
    }

    fn relay(&mut self, node: NodeId) -> &mut Relay {
        match self.nodes.get_mut(&node) {
            Some(node) => &mut node.relay,
            None => &mut self.root,
        }
    }

    fn deliver(&mut self, (from, to): (NodeId, NodeId)) {
        let message = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front);
        if to != NodeId::ROOT && !self.nodes.contains_key(&to) {
            return;
        }
        match message.unwrap() {
            Message::Up(up) => self.relay(to).handle_up(from, up),
            Message::Down(down) => self.relay(to).handle_down(down),
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
        let depth = group.id;
        let process = Process {
            node: id,
            script: self.script(depth),
            is_waiting: false,
            dies_of: None,
        };
        self.processes.insert(rank, process);
    }

    /// A program: it may spawn, meets its like, and finalizes.
    fn script(&mut self, depth: u32) -> VecDeque<Vec<u8>> {
        let mut script = VecDeque::from([b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec()]);
        if depth < 4 && self.random.below(3) == 0 {
            let program = ["other", "missing"][usize::from(self.random.below(3) == 0)];
            let count = 1 + self.random.below(4);
            let second = "mcmd=spawn\nnprocs=1\nexecname=other\ntotspawns=2\nspawnssofar=2\nargcnt=0\n\
                          preput_num=0\ninfo_num=0\nendcmd\n";
            let first = format!(
                "mcmd=spawn\nnprocs={count}\nexecname={program}\ntotspawns=2\nspawnssofar=1\nargcnt=0\n\
                 preput_num=0\ninfo_num=0\nendcmd\n{second}"
            );
            script.push_back(first.into_bytes());
        }
        script.push_back(b"cmd=barrier_in\n".to_vec());
        script.push_back(b"cmd=finalize\n".to_vec());
        script
    }

    fn act(&mut self, rank: Rank) {
        let process = self.processes.get_mut(&rank).unwrap();
        let node = process.node;
        let cause = match (process.dies_of, process.script.pop_front()) {
            (Some(signal), _) => Cause::Signalled(signal),
            (None, Some(line)) => {
                process.is_waiting = true;
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.mind.handle_pmi(rank, &line);
                }
                return;
            }
            (None, None) => Cause::Exited(0),
        };
        self.processes.remove(&rank);
        if let Some(node) = self.nodes.get_mut(&node) {
            node.mind.handle_exit(rank, cause, 0);
        }
    }

    /// An agent is gone, and with it all that is below it.
    fn lose(&mut self, node: NodeId) {
        self.remove(node);
        let parent = self.plan.tree().parent(node).unwrap();
        self.relay(parent).handle_child_lost(node, "died".to_owned());
    }

    fn remove(&mut self, node: NodeId) {
        let below = self.plan.tree().hosts_below(node);
        for below in below.into_iter().map(NodeId::of) {
            self.nodes.remove(&below);
            self.connecting.retain(|&connecting| connecting != below);
            self.links.retain(|&(from, to), _| from != below && to != below);
            self.processes.retain(|_, process| process.node != below);
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
                    self.nodes.remove(&id);
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
                    supervisor::Action::Event(JobEvent::Finished(verdict)) => self.verdict = Some(verdict),
                    supervisor::Action::Event(_) => {}
                    supervisor::Action::Send(down) => {
                        if let Down::Group(group) = &down {
                            self.groups.push(GroupPlan::clone(group));
                        }
                        self.root.handle_down(down);
                    }
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
                if let Some(process) = self.processes.get_mut(&rank) {
                    process.is_waiting = false;
                    self.spawns_answered += u32::from(bytes.starts_with(b"cmd=spawn_result"));
                }
            }
            host_agent::Action::Signal(rank, signal) => {
                if let Some(process) = self.processes.get_mut(&rank) {
                    process.dies_of = Some(signal);
                }
            }
            host_agent::Action::Sweep => node.mind.handle_swept(),
            // A connection is closed only after its last answer, or to a process that broke the protocol.
            host_agent::Action::ClosePmi(_) => {}
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn carry(&mut self, id: NodeId, action: relay::Action) {
        let now = self.now;
        match action {
            relay::Action::Abandon(child) => {
                self.remove(child);
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
                    (Down::Pmi(down), _) => mind.handle_pmi_down(down),
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
            relay::Action::SendChild(child, down) => self.push(id, child, Message::Down(down)),
            relay::Action::SendParent(up) => match self.plan.tree().parent(id) {
                Some(parent) => self.push(id, parent, Message::Up(up)),
                None => self.supervisor.handle_up(now, up),
            },
            relay::Action::StartChild(child) => self.connecting.push(child),
        }
    }

    fn push(&mut self, from: NodeId, to: NodeId, message: Message) {
        let is_there = |node: NodeId| node == NodeId::ROOT || self.nodes.contains_key(&node);
        if is_there(from) && is_there(to) {
            self.links.entry((from, to)).or_default().push_back(message);
        }
    }
}

fn simulate(seeds: std::ops::Range<u64>, faults: Faults, check: impl Fn(&Verdict)) -> u32 {
    let mut answered = 0;
    for seed in seeds {
        let result = std::panic::catch_unwind(|| World::new(seed, faults).run());
        let Ok((verdict, spawns)) = result else {
            panic!("seed {seed} of {faults:?}");
        };
        answered += spawns;
        check(&verdict);
    }
    answered
}

/// Nobody waits for ever while programs spawn programs that spawn programs, some of which are not there; each spawn is
/// answered, and a spawn that is refused is no failure of the job.
#[test]
fn spawns_are_always_answered() {
    let faults = Faults {
        kills: 0,
        agent_deaths: 0,
        on_failure: OnFailure::Abort,
    };
    let answered = simulate(0..1500, faults, |verdict| {
        assert!(verdict.is_success(), "{verdict}")
    });
    assert!(answered > 1500, "only {answered} spawns were answered");
}

/// Whoever dies while programs spawn, processes and agents, before, during and after: the job comes to its end and the
/// verdict names a culprit, under each policy.
#[test]
fn deaths_during_spawns_end_in_a_verdict() {
    let respawn = OnFailure::Respawn(RespawnPolicy::default());
    for on_failure in [OnFailure::Abort, OnFailure::Continue, respawn] {
        let faults = Faults {
            kills: 3,
            agent_deaths: 0,
            on_failure,
        };
        simulate(0..1500, faults, |verdict| {
            // Only what was spawned, and is not replaced, can make a job fail that replaces its ranks.
            let is_spawned = |failure: &Failure| failure.spawned.is_some();
            let is_well = verdict.is_success() || verdict.failures.iter().all(is_spawned);
            assert!(on_failure != respawn || is_well, "{verdict}");
        });
        let faults = Faults {
            kills: 1,
            agent_deaths: 2,
            on_failure,
        };
        simulate(0..1500, faults, |_| {});
    }
}
