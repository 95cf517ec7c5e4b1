//! A node's links in the tree, as sockets and processes: drives its [`Relay`].

mod binding;
mod links;
mod mending;
mod starting;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, Endpoint, Event, JobKey, PeerId};
use ropewalk_launch_core::{
    link::Link,
    protocol::{Down, Order, Plan, Report, TAG_DOWN, TAG_UP, Up},
    relay::{Action, Relay},
    tree::NodeId,
};
use ropewalk_names::HostId;
use ropewalk_pmi as pmi;
use rustix::{event::epoll, process::Pid};

use super::{
    command_keeper::{self, CommandKeeper},
    session::Spawned,
    starter::{Ended, Starter},
};
use crate::driver::bootstrap::Bootstrap;
pub(super) use binding::bind;
use links::{Above, send_bodies};

/// The identity of a node, and its knowledge of the job.
pub(super) struct Position {
    pub(super) node: NodeId,
    pub(super) key: JobKey,
    pub(super) plan: Arc<Plan>,
    /// The plan as it goes to the nodes below.
    pub(super) encoded_plan: Vec<u8>,
    /// Where the node above listens; `None` for the launcher.
    pub(super) parent: Option<Address>,
    /// Where the launcher listens; `None` for itself.
    pub(super) launcher: Option<Address>,
    /// True if this process may be forked.
    pub(super) forks: bool,
    /// The agent of the first host, if it runs already and knows its own position.
    pub(super) forked: Option<Spawned>,
}

impl Position {
    /// That of an agent.
    pub(super) fn new(bootstrap: Bootstrap, plan: Arc<Plan>) -> Self {
        Self {
            node: bootstrap.node,
            key: bootstrap.key,
            plan,
            encoded_plan: bootstrap.plan,
            parent: Some(bootstrap.parent),
            launcher: Some(bootstrap.launcher),
            forks: false,
            forked: None,
        }
    }

    /// The bootstrap for a node right below this one, which listens at `own`.
    pub(super) fn bootstrap(&self, node: NodeId, own: &Address) -> Bootstrap {
        Bootstrap {
            key: self.key.clone(),
            node,
            parent: own.clone(),
            launcher: self.launcher.as_ref().unwrap_or(own).clone(),
            plan: self.encoded_plan.clone(),
        }
    }
}

/// News that a node has from the others.
#[derive(Debug)]
pub(super) enum BranchEvent {
    /// The launcher is the node above from now on.
    Adopted,
    /// A node right below is gone, or nothing more is expected of it.
    ChildLost(NodeId),
    /// Something for this node's own host.
    Down(Down),
    /// The node above is gone; why.
    ParentLost(String),
    /// Something for this node's PMI server, from that of a node right below.
    Pmi(NodeId, pmi::Up),
    /// The node above is gone. This node lives, and asks the launcher to be the node above: said once, and
    /// again as long as the launcher is suspended.
    SeeksLauncher,
    /// Something for the launcher, at the launcher.
    Up(Up),
}

/// A node's links to the one above and to those below.
///
/// Call [`progress`](Self::progress) when the descriptor is readable and when
/// [`next_deadline`](Self::next_deadline) has come, take the events, and [`flush`](Self::flush) at the end of
/// each turn.
pub(super) struct Branch {
    position: Position,
    endpoint: Endpoint,
    relay: Relay,
    poller: OwnedFd,
    begun: Instant,
    above: Above,
    peers: BTreeMap<PeerId, NodeId>,
    children: BTreeMap<NodeId, Child>,
    /// At the launcher, once it has started a command that brings up another host.
    command_keeper: Option<Rc<CommandKeeper>>,
    events: VecDeque<BranchEvent>,
}

#[derive(Default)]
struct Child {
    starter: Option<Starter>,
    peer: Option<PeerId>,
    link: Link<Down>,
    has_connected: bool,
    /// The connection is lost, and it may make it again.
    may_come_back: bool,
    is_given_up: bool,
    /// The link is gone, or nothing more is expected: until then its process may say why, or end.
    wait_until: Option<(Instant, Wait)>,
}

enum Wait {
    /// For the process to tell why the link was lost; this is what the link tells.
    Explain(String),
    /// For the process to end; then it is killed.
    End,
}

const ENDPOINT: u64 = u64::MAX;
/// Kinds of a child's descriptors, in the lowest bits of what they are registered with.
const PIDFD: u64 = 0;
const LIFE_LINE: u64 = 1;
const STDERR: u64 = 2;

impl Branch {
    /// How long a process may take to tell why its link is gone.
    const EXPLANATION: Duration = Duration::from_millis(500);
    /// How long agents may take to end when nothing is wanted of them any more.
    pub(super) const END: Duration = Duration::from_millis(1500);

    /// How long the process that starts an agent may take to end when nobody waits for that agent any more,
    /// which has never connected. The process may hang, or be the agent's keeper, which is not to be killed
    /// over its work.
    const START_END: Duration = command_keeper::PATIENCE;

    /// Starts the agents right below. An agent connects to the node above.
    pub(super) fn start(position: Position, mut endpoint: Endpoint) -> io::Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(ENDPOINT);
        epoll::add(&poller, &endpoint, data, epoll::EventFlags::IN)?;
        let node_above = position.plan.tree().parent(position.node);
        let mut above = Above::new(node_above.unwrap_or(NodeId::ROOT), position.parent.clone());
        above.connect(&mut endpoint).map_err(io::Error::other)?;
        let mut relay = Relay::of(&position.plan, position.node);
        relay.start(Duration::ZERO);
        let mut branch = Self {
            endpoint,
            relay,
            poller,
            begun: Instant::now(),
            above,
            peers: BTreeMap::new(),
            children: BTreeMap::new(),
            command_keeper: None,
            events: VecDeque::new(),
            position,
        };
        branch.perform_actions();
        Ok(branch)
    }

    /// The job's key.
    pub(super) fn key(&self) -> &JobKey {
        &self.position.key
    }

    pub(super) fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    pub(super) fn poll_event(&mut self) -> Option<BranchEvent> {
        self.events.pop_front()
    }

    /// Tells the node above something about the own host.
    pub(super) fn report(&mut self, report: Report) {
        let host = self.position.node.host().unwrap_or(HostId(0));
        self.relay.report(host, report);
        self.perform_actions();
    }

    /// As if the node above had sent it.
    pub(super) fn send(&mut self, down: Down) {
        self.relay.handle_down(down);
        self.perform_actions();
    }

    /// Tells the PMI server of a node right below something.
    pub(super) fn send_pmi(&mut self, child: NodeId, down: pmi::Down) {
        self.relay.send_pmi(child, down);
        self.perform_actions();
    }

    /// Returns true if the node above has proven itself, and this one to it.
    pub(super) fn is_connected(&self) -> bool {
        self.above.is_connected(&self.endpoint)
    }

    /// See [`Relay::own_output`].
    pub(super) fn own_output(&self) -> usize {
        self.relay.own_output()
    }

    pub(super) fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Ends all agents right below, whatever they do.
    pub(super) fn abandon_all(&mut self) {
        self.relay.abandon_all();
        self.perform_actions();
    }

    /// Ends the life lines of all agents right below: their keepers end them if they do not end soon.
    pub(super) fn let_go(&mut self) {
        for starter in self
            .children
            .values_mut()
            .filter_map(|child| child.starter.as_mut())
        {
            starter.let_go();
        }
    }

    /// Returns true if this node has nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        self.are_starters_gone() && (self.relay.is_over() || self.has_left_all())
    }

    /// Returns true if all messages of this node lie where the launcher finds them. On the launcher's own
    /// host they do once the system has them: a UNIX socket does not break, and keeps what was sent when its
    /// sender is gone. To wait for the answer, as other nodes must, would only take time.
    fn has_left_all(&self) -> bool {
        self.above.is_on_this_host()
            && self.relay.has_said_all()
            && self.is_connected()
            && self.above.link.is_sent()
            && !self.endpoint.has_unsent()
    }

    /// Returns true if every process that was started here is gone.
    pub(super) fn are_starters_gone(&self) -> bool {
        self.children.values().all(|child| child.starter.is_none())
    }

    /// Somebody who reaps all children saw one end.
    pub(super) fn handle_reaped(&mut self, pid: Pid, ended: Ended) {
        for child in self.children.values_mut() {
            if let Some(starter) = child.starter.as_mut().filter(|starter| starter.pid() == pid) {
                starter.set_ended(ended);
            }
        }
    }

    /// Returns true if the process is one that was started here.
    pub(super) fn is_starter(&self, pid: Pid) -> bool {
        let mut starters = self.children.values().filter_map(|child| child.starter.as_ref());
        starters.any(|starter| starter.pid() == pid)
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable. Ask before each
    /// sleep on the descriptor.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        if !self.events.is_empty() {
            return Some(self.begun);
        }
        let relay = self
            .relay
            .deadline()
            .and_then(|after| self.begun.checked_add(after));
        let waits = self
            .children
            .values()
            .filter_map(|child| Some(child.wait_until.as_ref()?.0));
        let mending = self.above.deadline();
        let endpoint = self.endpoint.next_deadline();
        waits.chain(relay).chain(mending).chain(endpoint).min()
    }

    /// Takes what came and does what is due. Never waits.
    pub(super) fn progress(&mut self) {
        self.drive_endpoint();
        self.mend();
        self.look_at_starters();
        self.relay.handle_timeout(self.begun.elapsed());
        self.perform_actions();
    }

    /// Sends what was to be sent.
    pub(super) fn flush(&mut self) {
        let mut sent = false;
        if let Some(peer) = self.above.peer {
            sent |= send_bodies(&mut self.endpoint, peer, TAG_UP, &mut self.above.link);
        }
        for child in self.children.values_mut() {
            if let Some(peer) = child.peer {
                sent |= send_bodies(&mut self.endpoint, peer, TAG_DOWN, &mut child.link);
            }
        }
        if sent {
            self.drive_endpoint();
            self.perform_actions();
        }
    }

    /// At the launcher: its process was stopped for so long, in which it could hear nobody.
    pub(super) fn handle_resumed(&mut self, stopped: Duration) {
        self.begun += stopped;
        for child in self.children.values_mut() {
            if let Some((until, _)) = &mut child.wait_until {
                *until += stopped;
            }
        }
    }

    /// Ends all agents that are left, at once: their connections and their life lines end. Waits for so long, and kills
    /// what then remains on this host.
    pub(super) fn end_now(self, patience: Duration) {
        let Self {
            endpoint, children, ..
        } = self;
        drop(endpoint);
        let mut starters: Vec<_> = children.into_values().filter_map(|child| child.starter).collect();
        for starter in &mut starters {
            starter.let_go();
        }
        let deadline = Instant::now() + patience;
        while let Some(starter) = starters.last_mut() {
            let left = deadline.saturating_duration_since(Instant::now());
            if starter.ended().is_some() || left.is_zero() {
                // Dropped, it is killed.
                starters.pop();
                continue;
            }
            let timeout = rustix::event::Timespec::try_from(left).ok();
            let mut polled = [rustix::event::PollFd::from_borrowed_fd(
                starter.pidfd(),
                rustix::event::PollFlags::IN,
            )];
            // An interruption is for the next look.
            let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        }
    }

    /// Waits until all that was sent is handed to the system.
    pub(super) fn finish(&mut self) {
        self.flush();
        self.endpoint.flush(self.position.plan.detect);
    }

    fn drive_endpoint(&mut self) {
        self.endpoint.progress();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Unexpected { from, tag, body } => self.handle_message(from, tag, &body),
                Event::PeerDied { peer, cause, .. } => self.handle_peer_died(peer, &cause),
                // Only messages are sent from here.
                Event::Completed { .. } => {}
            }
        }
    }

    fn look_at_starters(&mut self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let at_once = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ready = epoll::wait(&self.poller, &mut events, Some(&at_once));
        let ready: Vec<u64> = ready.map_or_else(
            |_| Vec::new(),
            |(events, _)| events.iter().map(|event| event.data.u64()).collect(),
        );
        for data in ready.into_iter().filter(|&data| data != ENDPOINT) {
            let node = NodeId((data >> 2) as u32);
            let Some(starter) = self
                .children
                .get_mut(&node)
                .and_then(|child| child.starter.as_mut())
            else {
                continue;
            };
            let over = match data & 3 {
                LIFE_LINE if !starter.write() => starter.life_line(),
                STDERR => {
                    let descriptor = starter.stderr().map(|descriptor| descriptor.try_clone_to_owned());
                    let done = !starter.read();
                    if done && let Some(Ok(descriptor)) = descriptor {
                        let _ = epoll::delete(&self.poller, descriptor);
                    }
                    None
                }
                PIDFD if starter.ended().is_some() => Some(starter.pidfd()),
                _ => None,
            };
            if let Some(descriptor) = over {
                let _ = epoll::delete(&self.poller, descriptor);
            }
        }
        let now = Instant::now();
        let nodes: Vec<_> = self.children.keys().copied().collect();
        for node in nodes {
            self.look_at_child(node, now);
        }
    }

    fn look_at_child(&mut self, node: NodeId, now: Instant) {
        let Some(child) = self.children.get_mut(&node) else {
            return;
        };
        let ended = child.starter.as_mut().and_then(Starter::ended);
        let is_due = child.wait_until.as_ref().is_some_and(|(until, _)| *until <= now);
        match (&mut child.starter, ended) {
            // A command may put the agent into the background and end well; but then the agent soon connects.
            (Some(starter), Some(Ended::Exited(0))) if self.relay.is_awaited(node) => {
                let until = now + self.position.plan.detect;
                let (until, _) = child
                    .wait_until
                    .get_or_insert_with(|| (until, Wait::Explain(String::new())));
                if *until <= now {
                    let how = starter.how_it_failed(Ended::Exited(0));
                    child.starter = None;
                    self.relay.handle_child_lost(node, how);
                }
            }
            (Some(starter), Some(ended)) => {
                let lost = match &child.wait_until {
                    _ if self.relay.is_awaited(node) => Some(starter.how_it_failed(ended)),
                    Some((_, Wait::Explain(_))) if child.peer.is_none() => Some(starter.how_it_ended(ended)),
                    _ => None,
                };
                child.wait_until = None;
                child.starter = None;
                if let Some(how) = lost {
                    self.relay.handle_child_lost(node, how);
                }
            }
            (Some(starter), None) if is_due => match child.wait_until.take() {
                Some((_, Wait::Explain(link))) => {
                    let how = link + &starter.last_words();
                    self.relay.handle_child_lost(node, how);
                }
                Some((_, Wait::End)) | None => {
                    starter.kill();
                    child.wait_until = Some((now + Self::EXPLANATION, Wait::End));
                }
            },
            (None, _) if is_due => {
                if let Some((_, Wait::Explain(link))) = child.wait_until.take() {
                    self.relay.handle_child_lost(node, link);
                }
            }
            _ => {}
        }
    }

    fn perform_actions(&mut self) {
        while let Some(action) = self.relay.poll_action() {
            match action {
                Action::Abandon(node) => {
                    self.events.push_back(BranchEvent::ChildLost(node));
                    if let Some(child) = self.children.get_mut(&node) {
                        (child.is_given_up, child.may_come_back) = (true, false);
                        if let Some(starter) = &mut child.starter {
                            starter.let_go();
                            let detect = self.position.plan.detect;
                            let patience = match child.has_connected {
                                true => detect,
                                false => detect.min(Self::START_END),
                            };
                            child.wait_until = Some((Instant::now() + patience, Wait::End));
                        }
                    }
                }
                Action::Adopted => self.events.push_back(BranchEvent::Adopted),
                Action::Local(down) => self.events.push_back(BranchEvent::Down(down)),
                Action::LocalPmi(node, up) => self.events.push_back(BranchEvent::Pmi(node, up)),
                Action::LoseParent => {
                    self.above.is_lost = true;
                    let why = std::mem::take(&mut self.above.why_lost);
                    self.events.push_back(BranchEvent::ParentLost(why));
                }
                Action::SeekLauncher => self.seek_launcher(),
                Action::SendChild(node, down) => {
                    if matches!(down, Down::Bye)
                        && let Some(child) = self.children.get_mut(&node)
                    {
                        child.wait_until = Some((Instant::now() + self.position.plan.detect, Wait::End));
                    }
                    let size = match &down {
                        Down::Order(Order::Stdin(bytes)) | Down::To(_, Order::Stdin(bytes)) => bytes.len(),
                        _ => 0,
                    };
                    self.children.entry(node).or_default().link.push(down, size);
                }
                Action::SendParent(up) if self.position.node == NodeId::ROOT => {
                    self.events.push_back(BranchEvent::Up(up));
                }
                // Without a node above reports go nowhere.
                Action::SendParent(_) if self.above.is_lost => {}
                // Nobody waits for these; whoever is slow does without.
                Action::SendParent(up) if self.is_slow(&up.report) => {}
                Action::SendParent(up) => {
                    let size = up.report.output_size();
                    self.above.link.push(up, size);
                }
                Action::StartChild(node) => {
                    let (starter, failure) = match self.start_child(node) {
                        Ok(starter) => (Some(starter), None),
                        Err(error) => (None, Some(error)),
                    };
                    let child = Child {
                        starter,
                        ..Child::default()
                    };
                    self.children.insert(node, child);
                    if let Some(error) = failure {
                        self.relay
                            .handle_child_lost(node, format!("could not be started: {error}"));
                    }
                }
            }
        }
    }

    fn is_slow(&self, report: &Report) -> bool {
        matches!(report, Report::Trace { .. }) && self.above.link.waiting() > TRACE_BATCHES_MAX
    }
}

impl AsFd for Branch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

const SIGKILL: i32 = 9;
/// With so many messages waiting, trace events are dropped.
const TRACE_BATCHES_MAX: usize = 16;

#[cfg(test)]
mod tests;
