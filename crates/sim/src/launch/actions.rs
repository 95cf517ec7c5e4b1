//! Carries out the actions of a node's machines.

use std::collections::BTreeMap;

use ropewalk_launch_core::{
    host_agent,
    protocol::{Down, OUTPUT_WINDOW, Order, Up},
    relay, supervisor,
    tree::NodeId,
};
use ropewalk_names::{Held, Rank, RegionHandle};

use super::{Job, MOMENT, Mind, Node, Violation, What, host_of, links::Parcel, nowhere};
use crate::{Nanos, Process};

/// The messages that a node has to send, by receiver.
#[derive(Default)]
pub(super) struct Outbox {
    ups: BTreeMap<NodeId, Vec<Up>>,
    downs: BTreeMap<NodeId, Vec<Down>>,
}

/// A step of one of a node's machines.
enum Action {
    Relay(relay::Action),
    Agent(host_agent::Action),
    Supervisor(supervisor::Action),
}

impl Node {
    fn poll_action(&mut self) -> Option<Action> {
        let action = match &mut self.mind {
            Mind::Launcher(supervisor) => supervisor.poll_action().map(Action::Supervisor),
            Mind::Agent(agent) => agent.poll_action().map(Action::Agent),
        };
        action.or_else(|| self.relay.poll_action().map(Action::Relay))
    }

    fn agent(&mut self) -> Option<&mut host_agent::HostAgent> {
        match &mut self.mind {
            Mind::Agent(agent) => Some(agent),
            Mind::Launcher(_) => None,
        }
    }
}

impl Job<'_> {
    /// Does what the machines of a node say until they say nothing.
    pub(super) fn settle(&mut self, id: NodeId) {
        let mut outbox = Outbox::default();
        while let Some(action) = self.nodes.get_mut(&id).and_then(Node::poll_action) {
            match action {
                Action::Relay(action) => self.perform_relay(id, action, &mut outbox),
                Action::Agent(action) => self.perform_agent(id, action),
                Action::Supervisor(action) => self.perform_supervisor(action),
            }
        }
        self.send(id, outbox);
        let held_max = self.held_max(id);
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let bytes = node.relay.held_output();
        self.oracle
            .expect(bytes <= held_max, || Violation::HeldTooMuch { node: id, bytes });
        let is_spawning = node.agent().is_some_and(|agent| agent.is_spawning());
        if is_spawning && !std::mem::replace(&mut node.is_starting, true) {
            let span = node.free_at - self.simulation.now();
            self.after(span, id, What::Spawn);
        }
        self.set_alarm(id);
        // An agent whose work is done goes.
        if id != NodeId::ROOT && self.nodes[&id].relay.is_over() {
            self.oracle.note_left(id, &self.processes);
            self.remove(id, false);
        }
    }

    /// Each link's window, and the one message that may exceed it; what is said again comes at once.
    fn held_max(&self, id: NodeId) -> usize {
        let window = OUTPUT_WINDOW + (3 << 20);
        let said_again = if self.plan.adopts() { 6 * window } else { 0 };
        let adopted = if id == NodeId::ROOT { self.parents.len() } else { 0 };
        (self.plan.tree().children(id).len() + adopted + 1) * (window + said_again)
    }

    fn set_alarm(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let supervisor = match &node.mind {
            Mind::Launcher(supervisor) => supervisor.deadline(),
            Mind::Agent(_) => None,
        };
        let Some(deadline) = node.relay.deadline().into_iter().chain(supervisor).min() else {
            return;
        };
        let now = self.simulation.now();
        let due = Nanos::from(deadline).max(now + Nanos(1));
        if node.alarm <= now || due < node.alarm {
            node.alarm = due;
            self.after(due - now, id, What::Timeout);
        }
    }

    fn send(&mut self, from: NodeId, outbox: Outbox) {
        let breaks = self.setting.faults.cuts > 0;
        for (to, ups) in outbox.ups {
            ups.iter().for_each(|up| self.count_up(from, to, up));
            let parcels = match breaks {
                true => self.links.push_ups((from, to), ups),
                false => vec![Parcel::Ups(ups)],
            };
            self.post((from, to), parcels);
        }
        for (to, downs) in outbox.downs {
            downs.iter().for_each(|down| self.count_down(from, to, down));
            let parcels = match breaks {
                true => self.links.push_downs((from, to), downs),
                false => vec![Parcel::Downs(downs)],
            };
            self.post((from, to), parcels);
        }
    }

    /// Sends messages once the sender has time.
    pub(super) fn post(&mut self, (from, to): (NodeId, NodeId), parcels: Vec<Parcel>) {
        for parcel in parcels {
            let free_at = self.spend(from, self.setting.costs.message);
            let span = free_at - self.simulation.now();
            let bytes = size(&parcel);
            let what = What::Parcel(from, parcel);
            self.simulation
                .send_after(span, Process(from.0), Process(to.0), bytes, what);
        }
    }

    /// Ends a process soon. Returns false if there is none.
    pub(super) fn signal(&mut self, rank: Rank, signal: i32) -> bool {
        let Some(process) = self.processes.get_mut(&rank) else {
            return false;
        };
        process.dies_of = Some(signal);
        let (node, life) = (process.node, process.life);
        let span = self.drawn(MOMENT);
        self.after(span, node, What::Act(rank, life));
        true
    }

    fn perform_supervisor(&mut self, action: supervisor::Action) {
        let Some(root) = self.nodes.get_mut(&NodeId::ROOT) else {
            return;
        };
        match action {
            supervisor::Action::AbandonAgents => {
                self.oracle.has_despaired = true;
                root.relay.abandon_all();
            }
            supervisor::Action::Event(event) => self.handle_job_event(event),
            supervisor::Action::Finished(verdict) => self.outcome.verdict = Some(verdict),
            supervisor::Action::Send(down) => {
                let group = match &down {
                    Down::Group(group) => Some(group.as_ref().clone()),
                    _ => None,
                };
                root.relay.handle_down(down);
                if let Some(group) = group {
                    self.add_group(group);
                }
            }
            supervisor::Action::SendPmi(child, down) => root.relay.send_pmi(child, down),
            supervisor::Action::AskNames(..) | supervisor::Action::ReadHostFiles(_) => {
                unreachable!("the programs publish no names and name no files")
            }
        }
    }

    fn perform_agent(&mut self, id: NodeId, action: host_agent::Action) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        match action {
            host_agent::Action::Report(report) => node.relay.report(host_of(id), report),
            host_agent::Action::SendChild(child, down) => node.relay.send_pmi(child, down),
            host_agent::Action::SendPmi(rank, bytes) => self.answer(rank, &bytes),
            host_agent::Action::Signal(rank, signal) => {
                self.oracle.note_signal(rank);
                self.signal(rank, signal);
            }
            host_agent::Action::Sweep => {
                if let Some(agent) = node.agent() {
                    agent.handle_swept();
                }
            }
            host_agent::Action::Expose(rank, held) => {
                self.oracle.serving.insert(id);
                if let Some(agent) = node.agent() {
                    let handle = handle_of(&held);
                    agent.handle_exposed(rank, held, handle);
                }
            }
            host_agent::Action::SendLink(to, message) => self.oracle.note_heard(to, &message),
            host_agent::Action::ClosePmi(_)
            | host_agent::Action::Fence(_)
            | host_agent::Action::Forget(..)
            | host_agent::Action::Withdraw(_) => {}
        }
    }

    /// A process gets an answer by PMI.
    fn answer(&mut self, rank: Rank, bytes: &[u8]) {
        self.oracle.note_answer(rank, bytes, &mut self.processes);
        if let Some(process) = self.processes.get_mut(&rank) {
            let was_waiting = std::mem::replace(&mut process.is_waiting, false);
            self.oracle.expect(was_waiting, || Violation::AnsweredTwice(rank));
            self.outcome.spawns += u32::from(bytes.starts_with(b"cmd=spawn_result"));
            self.wake(rank);
        }
    }

    fn perform_relay(&mut self, id: NodeId, action: relay::Action, outbox: &mut Outbox) {
        let now = self.now();
        match action {
            relay::Action::Abandon(child) => {
                self.after(MOMENT, child, What::End);
                match self.nodes.get_mut(&id).map(|node| &mut node.mind) {
                    Some(Mind::Agent(agent)) => agent.handle_child_lost(child),
                    Some(Mind::Launcher(supervisor)) => supervisor.handle_child_lost(now, child),
                    None => {}
                }
            }
            relay::Action::Local(down) => self.obey(id, down),
            relay::Action::LocalPmi(child, up) => match self.nodes.get_mut(&id).map(|node| &mut node.mind) {
                Some(Mind::Agent(agent)) => agent.handle_pmi_up(child, up),
                Some(Mind::Launcher(supervisor)) => supervisor.handle_pmi(now, child, up),
                None => {}
            },
            relay::Action::SendChild(child, down) => outbox.downs.entry(child).or_default().push(down),
            relay::Action::Adopted => self.outcome.adoptions += 1,
            relay::Action::LoseParent => {}
            relay::Action::SeekLauncher => drop(self.parents.insert(id, NodeId::ROOT)),
            relay::Action::SendParent(up) => match self.parent(id) {
                Some(parent) => outbox.ups.entry(parent).or_default().push(up),
                None => self.arrive(up),
            },
            relay::Action::StartChild(child) => {
                let started = self.spend(id, self.setting.costs.start_agent);
                let login = self.drawn(self.setting.costs.login);
                let missing = self.setting.faults.missing_one_in;
                if missing == 0 || !self.dice.once_in(missing) {
                    let span = started - self.simulation.now() + login;
                    self.after(span, child, What::Connect);
                }
            }
        }
    }

    /// A report has reached the launcher.
    fn arrive(&mut self, up: Up) {
        self.oracle.note_report(&up);
        let bytes = up.report.output_size() as u32;
        if bytes > 0 {
            let span = self.drawn(Nanos::from_millis(10));
            self.after(span, NodeId::ROOT, What::Taken(bytes));
        }
        let now = self.now();
        if let Some(Mind::Launcher(supervisor)) = self.nodes.get_mut(&NodeId::ROOT).map(|node| &mut node.mind)
        {
            supervisor.handle_up(now, up);
        }
    }

    /// An agent does what the launcher says.
    fn obey(&mut self, id: NodeId, down: Down) {
        let options = match &down {
            Down::Group(group) => Some(self.plan.pmi_group(group, id)),
            _ => None,
        };
        let Some(agent) = self.nodes.get_mut(&id).and_then(Node::agent) else {
            return;
        };
        match (down, options) {
            (Down::Cancel(group), _) => agent.handle_cancel(group),
            (Down::Forget(group), _) => agent.handle_forget(group),
            (Down::Group(group), Some(options)) => {
                let ranks: Vec<_> = group.job_ranks(host_of(id)).collect();
                agent.handle_group(group.first, options, &ranks);
            }
            (Down::News(news), _) => agent.handle_news(news),
            (Down::Order(Order::Pmi(down)) | Down::Pmi(down), _) => agent.handle_pmi_down(down),
            (Down::Order(Order::ReleaseMemory), _) => agent.handle_released(),
            (Down::Order(Order::Respawn { rank, incarnation }), _) => agent.handle_respawn(rank, incarnation),
            (Down::Order(Order::Signal { rank, signal }), _) => agent.handle_signal(rank, signal),
            (Down::Order(Order::Spawned { id, result }), _) => agent.handle_spawn_answer(id, result),
            _ => {}
        }
    }
}

/// About the bytes of a message.
fn size(parcel: &Parcel) -> u64 {
    const HEAD: u64 = 64;
    match parcel {
        Parcel::Ups(ups) => {
            let sizes = ups.iter().map(|up| 16 + up.report.output_size() as u64);
            HEAD + sizes.sum::<u64>()
        }
        Parcel::Downs(downs) => HEAD + 16 * downs.len() as u64,
        Parcel::Body(_, body) => HEAD + body.len() as u64,
    }
}

fn handle_of(held: &Held) -> RegionHandle {
    RegionHandle {
        address: nowhere(),
        region: held.id.0,
        token: 0,
        length: 1,
        writable: false,
    }
}
