//! Whole jobs in virtual time: the [`Supervisor`], [`Relay`]s, [`HostAgent`]s and
//! [`Link`](ropewalk_launch_core::link::Link)s of `ropewalk-launch-core` on simulated hosts, from the start of the
//! agents to the verdict.
//!
//! The ranks are programs that speak PMI, spawn others, write and leave memory. Processes and agents die, agents
//! never come up, connections break, and the user ends the job. An oracle checks the promises to programs and users.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    time::Duration,
};

use ropewalk_launch_core::{
    JobEvent, OutputStream, Verdict,
    group_plan::GroupPlan,
    host_agent::{FromRank, HostAgent},
    plan::{Surroundings, plan},
    protocol::{Down, OUTPUT_WINDOW, Plan, Report, StartError, StartErrorKind, Up},
    relay::Relay,
    supervisor::Supervisor,
    tree::NodeId,
};
use ropewalk_membership::Cause;
use ropewalk_names::{Address, Held, HoldId, HostId, JobId, Rank};

use crate::{Dice, Event, Host, Nanos, Network, Simulation, World};
use links::{Links, Parcel};
use oracle::Oracle;
use programs::{MISSING, Step, wanted};

mod actions;
mod faults;
mod links;
mod oracle;
mod programs;
mod setting;
mod traffic;

pub use self::{
    oracle::Violation,
    programs::Programs,
    setting::{Costs, Faults, Setting},
    traffic::Traffic,
};

/// A finished simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict; `None` if all that is of interest is the start.
    pub verdict: Option<Verdict>,
    /// The progress of the start.
    pub start: StartTimes,
    /// Messages that the launcher received.
    pub messages_to_launcher: u64,
    /// Spawns that were answered.
    pub spawns: u32,
    /// Pieces of memory that ranks heard of.
    pub inherited: u32,
    /// Agents that the launcher adopted.
    pub adoptions: u32,
    /// Connections that were lost.
    pub cuts: u32,
    /// A node did not hear something, as [`Faults::forgets_after`] says.
    pub has_forgotten: bool,
    /// The messages of fences, by sender and receiver.
    pub fences: BTreeMap<(NodeId, NodeId), Traffic>,
    /// All events.
    pub events: u64,
    /// Equal in equal runs.
    pub digest: u64,
}

/// Moments of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartTimes {
    /// The last agent had connected.
    pub agents: Nanos,
    /// The last rank ran.
    pub ranks: Nanos,
    /// The launcher knew of all ranks.
    pub known: Nanos,
}

/// Runs a job to its end; if its programs are [idle](Programs::Idle), until the launcher knows that all ranks run.
///
/// # Errors
/// If a promise is broken. A job that is not over after an hour hangs.
///
/// # Panics
/// If the hosts have no room for the ranks.
pub fn run(setting: &Setting) -> Result<Outcome, Violation> {
    let mut job = Job::new(setting);
    job.begin(NodeId::ROOT);
    let is_silent = job.play(TIME_MAX);
    job.finish(is_silent)
}

const TIME_MAX: Nanos = Nanos::from_millis(3_600_000);
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The time until a process hears a signal, and until a blocked one looks again.
const MOMENT: Nanos = Nanos::from_millis(1);

/// Something that happens to a node, or to a process on its host.
#[derive(Debug)]
enum What {
    /// The agent is up.
    Connect,
    /// The agent starts its next ranks.
    Spawn,
    /// A process does its next step, if this is still its life.
    Act(Rank, u64),
    Parcel(NodeId, Parcel),
    /// A neighbour is gone.
    Gone(NodeId),
    /// The connection to this node above is made again.
    ConnectAgain(NodeId),
    /// The node has been given up and is ended.
    End,
    /// The user has taken so many bytes of output.
    Taken(u32),
    Timeout,
    Fault(faults::Fault),
}

struct Job<'a> {
    setting: &'a Setting,
    simulation: Simulation<What>,
    dice: Dice,
    plan: Plan,
    groups: Vec<Group>,
    nodes: BTreeMap<NodeId, Node>,
    /// The nodes above those that were adopted.
    parents: BTreeMap<NodeId, NodeId>,
    links: Links,
    processes: BTreeMap<Rank, Process>,
    lives: u64,
    oracle: Oracle,
    /// So many messages until one is forgotten.
    forgets_after: Option<u32>,
    known: u32,
    outcome: Outcome,
}

struct Group {
    plan: GroupPlan,
    kvsname: String,
}

struct Node {
    relay: Relay,
    mind: Mind,
    free_at: Nanos,
    /// It will look at its clock then.
    alarm: Nanos,
    is_starting: bool,
}

enum Mind {
    Launcher(Box<Supervisor>),
    Agent(Box<HostAgent>),
}

/// A process of a rank.
#[derive(Debug)]
struct Process {
    node: NodeId,
    life: u64,
    script: VecDeque<Step>,
    is_waiting: bool,
    dies_of: Option<i32>,
    /// The rank whose key it asked for.
    wanted: Option<Rank>,
    has_failed_fence: bool,
}

impl World for Job<'_> {
    type What = What;

    fn simulation(&mut self) -> &mut Simulation<What> {
        &mut self.simulation
    }

    fn handle(&mut self, event: Event<What>) {
        let node = NodeId(event.process.0);
        match event.what {
            What::Connect => self.connect(node),
            What::Spawn => self.spawn(node),
            What::Act(rank, life) => self.act(rank, life),
            What::Parcel(from, parcel) => self.receive(from, node, parcel),
            What::Gone(other) => self.see_gone(node, other),
            What::ConnectAgain(above) => {
                let parcels = self.links.connect_again((node, above));
                self.post((node, above), parcels);
            }
            What::End => self.remove(node, true),
            What::Taken(bytes) => self.with(node, |node| node.relay.handle_down(Down::Credit(bytes))),
            What::Timeout => {
                let now = self.now();
                self.with(node, |node| {
                    node.relay.handle_timeout(now);
                    if let Mind::Launcher(supervisor) = &mut node.mind {
                        supervisor.handle_timeout(now);
                    }
                });
            }
            What::Fault(fault) => self.strike(fault),
        }
    }

    fn is_over(&self) -> bool {
        let is_started = self.setting.programs == Programs::Idle && self.known == self.plan.size;
        is_started || self.oracle.broken.is_some()
    }
}

impl<'a> Job<'a> {
    fn new(setting: &'a Setting) -> Self {
        let around = Surroundings {
            is_port_free: |_| true,
            job: JobId([0; 16]),
            // None of the hosts: the launcher has one of its own.
            host_name: "launcher".to_owned(),
            processors: 1,
            environment: Vec::new(),
            working_directory: None,
        };
        let plan = plan(&setting.spec, around).expect("the hosts of a setting have room for its ranks");
        // Node 0 is the launcher; one more process is for what goes wrong.
        let processes = plan.hosts.len() as u32 + 2;
        let mut network = Network::uniform(processes, setting.rate, setting.latency());
        if setting.is_irregular {
            network.set_jitter(Nanos::from_millis(5), setting.seed);
        }
        let mut job = Self {
            setting,
            simulation: Simulation::new(network, (0..processes).map(Host).collect()),
            dice: Dice::new(setting.seed.rotate_left(32)),
            groups: Vec::new(),
            nodes: BTreeMap::new(),
            parents: BTreeMap::new(),
            links: Links::default(),
            processes: BTreeMap::new(),
            lives: 0,
            oracle: Oracle::new(setting, plan.clone()),
            forgets_after: setting.faults.forgets_after,
            known: 0,
            outcome: Outcome {
                verdict: None,
                start: StartTimes::default(),
                messages_to_launcher: 0,
                spawns: 0,
                inherited: 0,
                adoptions: 0,
                cuts: 0,
                has_forgotten: false,
                fences: BTreeMap::new(),
                events: 0,
                digest: 0,
            },
            plan,
        };
        job.add_group(job.plan.first_group());
        job.plan_faults();
        job
    }

    fn finish(mut self, is_silent: bool) -> Result<Outcome, Violation> {
        if let Some(violation) = self.oracle.broken {
            return Err(violation);
        }
        self.outcome.inherited = self.oracle.inherited;
        self.outcome.events = self.simulation.events();
        self.outcome.digest = self.simulation.digest();
        if self.setting.programs == Programs::Idle && self.known == self.plan.size {
            return Ok(self.outcome);
        }
        let is_quiet = |node: &Node| node.relay.are_children_over();
        let is_well = is_silent
            && self.processes.is_empty()
            && self.nodes.len() == 1
            && self.nodes.values().all(is_quiet);
        match &self.outcome.verdict {
            Some(verdict) if is_well => self.oracle.judge(verdict).map(|()| self.outcome),
            verdict => Err(Violation::Hang {
                ranks: self.processes.into_keys().collect(),
                agents: self
                    .nodes
                    .into_keys()
                    .filter(|node| *node != NodeId::ROOT)
                    .collect(),
                has_verdict: verdict.is_some(),
            }),
        }
    }

    fn now(&self) -> Duration {
        self.simulation.now().into()
    }

    /// The time that something takes.
    fn drawn(&mut self, cost: impl Into<Nanos>) -> Nanos {
        let cost = cost.into();
        if !self.setting.is_irregular {
            return cost;
        }
        let factor = if self.dice.once_in(16) { 20 } else { 2 };
        Nanos(self.dice.below(factor * cost.0 + 1))
    }

    /// Has a node busy for so long, and returns when it is free.
    fn spend(&mut self, node: NodeId, cost: impl Into<Nanos>) -> Nanos {
        let span = self.drawn(cost);
        let now = self.simulation.now();
        match self.nodes.get_mut(&node) {
            Some(node) => {
                node.free_at = node.free_at.max(now) + span;
                node.free_at
            }
            None => now,
        }
    }

    fn after(&mut self, span: Nanos, node: NodeId, what: What) {
        self.simulation.after(span, crate::Process(node.0), what);
    }

    fn add_group(&mut self, group: GroupPlan) {
        let kvsname = self.plan.pmi_group(&group, NodeId::ROOT).kvsname;
        self.groups.push(Group { plan: group, kvsname });
    }

    fn parent(&self, node: NodeId) -> Option<NodeId> {
        let adopted = self.parents.get(&node).copied();
        adopted.or_else(|| self.plan.tree().parent(node))
    }

    /// A node comes up.
    fn begin(&mut self, id: NodeId) {
        let mind = match id.host() {
            None => {
                let supervisor = Supervisor::new(&self.plan, self.setting.spec.reactions.on_failure, None);
                Mind::Launcher(Box::new(supervisor))
            }
            Some(host) => {
                self.oracle.came.insert(host);
                let agent = HostAgent::new(self.plan.start(host), nowhere(), u64::MAX);
                Mind::Agent(Box::new(agent))
            }
        };
        let node = Node {
            relay: Relay::of(&self.plan, id),
            mind,
            free_at: self.simulation.now(),
            alarm: Nanos::ZERO,
            is_starting: false,
        };
        self.nodes.insert(id, node);
        let now = self.now();
        self.with(id, |node| {
            node.relay.start(now);
            if let Some(host) = id.host() {
                let host_name = format!("h{}", host.0);
                node.relay.report(host, Report::Ready { host_name });
            }
        });
    }

    /// An agent is up, and finds the node above: or that it is gone, or that it has given this one up.
    fn connect(&mut self, id: NodeId) {
        let Some(parent) = self.parent(id) else { return };
        let is_awaited = self.nodes.get(&parent).map(|node| node.relay.is_awaited(id));
        match is_awaited {
            Some(true) => {
                self.outcome.start.agents = self.simulation.now();
                self.spend(parent, self.setting.costs.message);
                self.with(parent, |node| node.relay.handle_connected(id));
                self.begin(id);
            }
            None if self.plan.adopts() => {
                self.begin(id);
                self.with(id, |node| node.relay.handle_parent_lost(SIGKILL));
            }
            _ => {}
        }
    }

    /// Hands something to a node that lives, and has what it wants done happen.
    fn with(&mut self, id: NodeId, act: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&id) {
            act(node);
            self.settle(id);
        }
    }

    fn with_agent(&mut self, id: NodeId, act: impl FnOnce(&mut HostAgent)) {
        self.with(id, |node| {
            if let Mind::Agent(agent) = &mut node.mind {
                act(agent);
            }
        });
    }

    /// Starts the next ranks of a host.
    fn spawn(&mut self, id: NodeId) {
        for _ in 0..self.setting.costs.ranks_per_message {
            let Some(Node {
                mind: Mind::Agent(agent),
                ..
            }) = self.nodes.get_mut(&id)
            else {
                return;
            };
            let Some(rank) = agent.poll_spawn() else { break };
            let group = self.groups.iter().find(|group| group.plan.has(rank));
            let group = group.expect("an agent is told of a group before its ranks");
            let program = group.plan.program_of(rank);
            if program.is_some_and(|(_, program)| program.segment.program == OsStr::new(MISSING)) {
                let error = StartError {
                    kind: StartErrorKind::NotFound,
                    reason: "not there".to_owned(),
                };
                agent.handle_not_spawned(rank, error);
                continue;
            }
            agent.handle_spawned(rank, 100 + rank.0);
            if self.setting.holds_memory {
                let pieces = hand_over_memory(rank, agent);
                self.oracle.note_held(rank, agent.incarnation(rank), pieces);
            }
            let place = rank.0 - group.plan.first.0;
            let programs = self.setting.programs;
            let script = programs.script(&mut self.dice, &group.plan, &group.kvsname, place);
            self.lives += 1;
            let process = Process {
                node: id,
                life: self.lives,
                script,
                is_waiting: false,
                dies_of: None,
                wanted: None,
                has_failed_fence: false,
            };
            self.processes.insert(rank, process);
            let done = self.spend(id, self.setting.costs.start_rank);
            self.outcome.start.ranks = self.outcome.start.ranks.max(done);
            if programs != Programs::Idle {
                self.wake(rank);
            }
        }
        self.with(id, |node| node.is_starting = false);
    }

    /// Has a process do its next step soon.
    fn wake(&mut self, rank: Rank) {
        let span = self.drawn(self.setting.costs.step);
        if let Some(process) = self.processes.get(&rank) {
            let (node, life) = (process.node, process.life);
            self.after(span, node, What::Act(rank, life));
        }
    }

    fn act(&mut self, rank: Rank, life: u64) {
        let process = self.processes.get_mut(&rank);
        let Some(process) = process.filter(|process| process.life == life) else {
            return;
        };
        let id = process.node;
        let cause = match (process.dies_of, process.is_waiting) {
            (Some(signal), _) => Cause::Signalled(signal),
            (None, true) => return,
            (None, false) => match process.script.pop_front() {
                Some(Step::Say(line)) => {
                    process.is_waiting = true;
                    process.wanted = wanted(&line).and_then(|place| {
                        let group = self.groups.iter().find(|group| group.plan.has(rank))?;
                        Some(Rank(group.plan.first.0 + place))
                    });
                    return self.with_agent(id, |agent| agent.handle_pmi(rank, &line));
                }
                Some(Step::Write(bytes)) => return self.write(rank, id, bytes),
                None => {
                    self.oracle.exited_well.insert(rank);
                    Cause::Exited(0)
                }
            },
        };
        self.processes.remove(&rank);
        self.with_agent(id, |agent| agent.handle_exit(rank, cause, None, 0));
    }

    /// A process writes, if its agent takes it now.
    fn write(&mut self, rank: Rank, id: NodeId, bytes: usize) {
        let Some((node, host)) = self.nodes.get(&id).zip(id.host()) else {
            return;
        };
        if node.relay.own_output() < OUTPUT_WINDOW {
            self.oracle.note_written(host, bytes);
            let output = Report::Output {
                rank,
                stream: OutputStream::Stdout,
                lines: vec![0; bytes],
            };
            self.with(id, |node| node.relay.report(host, output));
        } else if let Some(process) = self.processes.get_mut(&rank) {
            process.script.push_front(Step::Write(bytes));
        }
        self.wake(rank);
    }

    /// A message has come over a connection.
    fn receive(&mut self, from: NodeId, to: NodeId, parcel: Parcel) {
        if !self.nodes.contains_key(&to) {
            return;
        }
        let (parcel, back) = self.links.receive((from, to), parcel);
        self.post((to, from), back);
        let costs = self.setting.costs;
        match parcel {
            Parcel::Ups(ups) => {
                if to == NodeId::ROOT {
                    self.outcome.messages_to_launcher += 1;
                }
                self.spend(to, costs.message + costs.report * ups.len() as u32);
                let ups: Vec<Up> = ups.into_iter().filter(|up| !self.forgets_up(up)).collect();
                self.with(to, |node| {
                    ups.into_iter().for_each(|up| node.relay.handle_up(from, up))
                });
            }
            Parcel::Downs(downs) if self.parent(to) == Some(from) => {
                self.spend(to, costs.message);
                let downs: Vec<Down> = downs
                    .into_iter()
                    .filter(|down| !self.forgets_down(down))
                    .collect();
                self.with(to, |node| {
                    downs.into_iter().for_each(|down| node.relay.handle_down(down))
                });
            }
            Parcel::Downs(_) | Parcel::Body(..) => {}
        }
    }

    fn handle_job_event(&mut self, event: JobEvent) {
        if let JobEvent::Started { .. } = event {
            self.known += 1;
            self.outcome.start.known = self.nodes[&NodeId::ROOT].free_at;
        }
    }
}

/// A rank wants to hear of departures and hands over memory. Returns how many pieces.
fn hand_over_memory(rank: Rank, agent: &mut HostAgent) -> u32 {
    agent.handle_link(rank, FromRank::Attach, None);
    let pieces = rank.0 % 3;
    let held = |id: u32| Held {
        id: HoldId(id.into()),
        label: Vec::new(),
    };
    let is_kept = |id: &u32| agent.handle_link(rank, FromRank::Hold(held(*id)), Some(1));
    (0..pieces).filter(is_kept).count() as u32
}

/// An address for memory that nobody reads.
fn nowhere() -> Address {
    "tcp://127.0.0.1:1".parse().expect("it is an address")
}

fn host_of(node: NodeId) -> HostId {
    node.host().expect("the launcher has no host of its own")
}
