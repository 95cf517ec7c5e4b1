//! The process manager's side of PMI.

mod action;
mod bridged;
mod connection;
mod connections;
mod fences;
mod group;
mod node_attributes;
mod outbox;
mod questions;
mod requests;
mod stage;
mod tree;
mod waiter;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;

use crate::{Form, KeyValueSpace, LINE_SIZE_MAX, RankSet, Response};
use connection::Connection;
use connections::Connections;
use fences::{Above, Failure, Settled};
use group::{Group, Phase};
use node_attributes::nobody_is_left;
use outbox::Outbox;
use questions::{Asker, Questions};
use waiter::{FenceWaiter, Waiter};

pub use action::{
    Action, ChildId, ConnectionId, GroupId, NameQuestionId, Peer, Process, ProtocolError, SpawnId,
};
pub use bridged::{BridgeToken, BridgedFence};
pub use group::{AbsentMembers, GroupOptions};
pub use stage::Stage;
pub use tree::{
    Absence, Answer, Down, FenceId, FenceScope, KeyValuePairs, Question, SpawnRefused, Spawned,
    TreeMessageError, Up,
};

/// Serves the processes of one host. The servers of a job's hosts form a tree; a job on one host has a tree of one.
///
/// Tell it of the process groups ([`add_group`](Self::add_group)), of each connection
/// ([`open`](Self::open)), of what comes on it ([`handle_bytes`](Self::handle_bytes),
/// [`handle_closed`](Self::handle_closed)) and of what became of each process
/// ([`handle_departure`](Self::handle_departure)); in a tree also of what the servers above and below say
/// ([`handle_up`](Self::handle_up), [`handle_down`](Self::handle_down)). After each of these do what
/// [`poll_action`](Self::poll_action) says until it says nothing.
///
/// Every server of the tree must know a group before a message about it comes, and the root must know all groups.
/// Puts are kept here until a fence, go up once with those of the servers below, and come down once to all; gets are
/// answered from what is here.
#[derive(Debug)]
pub struct Server {
    above: Above,
    groups: BTreeMap<GroupId, Group>,
    connections: Connections,
    outbox: Outbox,
    lost_children: BTreeSet<ChildId>,
    /// The published names with their ports; only the root has them.
    services: KeyValueSpace,
    /// True if published names are kept by a name server that several jobs share.
    shares_names: bool,
    questions: Questions,
}

impl Server {
    /// How many requests of one connection may wait at a time.
    pub const REQUESTS_MAX: usize = 1024;
    /// How many bytes of keys and values go into one message of the tree; more make several messages.
    pub const PAIRS_SIZE_MAX: usize = 1 << 20;

    /// The server of the root: nobody is above it. A job on one host has no other.
    pub fn root() -> Self {
        Self::new(Above::Nobody)
    }

    /// A server below another.
    pub fn below_parent() -> Self {
        Self::new(Above::Parent)
    }

    fn new(above: Above) -> Self {
        Self {
            above,
            groups: BTreeMap::new(),
            connections: Connections::default(),
            outbox: Outbox::default(),
            lost_children: BTreeSet::new(),
            services: KeyValueSpace::new(LINE_SIZE_MAX),
            shares_names: false,
            questions: Questions::default(),
        }
    }

    /// From now on names are published and looked up at a name server that several jobs share: see
    /// [`Action::AskNames`]. It concerns the root only, which is told before any process speaks.
    pub fn share_names(&mut self) {
        self.shares_names = true;
    }

    /// From now on there is this process group.
    ///
    /// # Panics
    /// If its key-value space's name is longer than [`KVSNAME_SIZE_MAX`](crate::KVSNAME_SIZE_MAX) or holds what ends
    /// a name, or a group of the same number is there.
    pub fn add_group(&mut self, options: GroupOptions) {
        let id = options.id;
        let (lost, children): (Vec<_>, Vec<_>) = options
            .children
            .iter()
            .cloned()
            .partition(|(child, _)| self.lost_children.contains(child));
        self.outbox
            .children
            .extend(children.iter().map(|(child, _)| *child));
        let before = self.groups.insert(id, Group::new(options));
        assert!(before.is_none(), "the process group {} is there already", id.0);
        // Who made the group may not have known of a loss.
        for (_, ranks) in lost {
            self.depart(id, &ranks, Absence::AgentLost);
        }
    }

    /// Forgets a process group whose processes are all gone, everywhere.
    pub fn remove_group(&mut self, id: GroupId) {
        self.groups.remove(&id);
        self.connections.forget_group(id);
    }

    /// A process can speak on a new connection. A process that was gone is back with it, as a new incarnation; what
    /// it said before is forgotten, and fences wait for it again.
    pub fn open(&mut self, connection: ConnectionId, peer: Peer) {
        if let Peer::Process(process) = peer {
            self.connections.open(connection, process);
            return self.welcome(process);
        }
        let greeting = matches!(peer, Peer::Singleton(_));
        let mut opened = Connection::new(peer);
        opened.is_greeted = greeting;
        self.connections.open_unknown(connection, opened);
        if greeting {
            let response = Response::Singinit {
                authentication: Some("none".into()),
            };
            self.outbox.send(connection, Form::Line, None, &response);
        }
    }

    /// Takes what came on a connection, cut anywhere.
    pub fn handle_bytes(&mut self, connection: ConnectionId, bytes: &[u8]) {
        self.read(connection, bytes);
        self.resume();
    }

    /// A process closed its connection.
    pub fn handle_closed(&mut self, connection: ConnectionId) {
        if let Some(process) = self.connections.forget(connection) {
            self.depart(
                process.group,
                &RankSet::range(process.rank, process.rank + 1),
                Absence::Closed,
            );
        }
        self.resume();
    }

    /// A process is gone; `failed` if not as a process should go. Give the server its last bytes first.
    pub fn handle_departure(&mut self, process: Process, failed: bool) {
        if !self
            .group_of(process)
            .is_some_and(|group| group.is_local(process.rank))
        {
            return;
        }
        if let Some(connection) = self.connections.of(process) {
            self.connections.forget(connection);
        }
        let how = match failed {
            true => Absence::Failed,
            false => Absence::Closed,
        };
        self.depart(
            process.group,
            &RankSet::range(process.rank, process.rank + 1),
            how,
        );
        self.resume();
    }

    /// A server directly below says something.
    pub fn handle_up(&mut self, child: ChildId, message: Up) {
        match message {
            Up::Ask { id, question } => self.ask(question, Asker::Child { child, id }),
            Up::Departed { group, ranks, how } => {
                let ranks = ranks.intersection(&self.below(group, child));
                self.depart(group, &ranks, how);
            }
            Up::Fence {
                group: id,
                fence,
                members,
                pairs,
            } => {
                let members = members.intersection(&self.below(id, child));
                if let Some(group) = self.groups.get_mut(&id) {
                    group.collect(pairs);
                    // Of a process that is gone already no fence waits any more.
                    let members = members.iter().filter(|rank| !group.is_absent(*rank)).collect();
                    group.fences.enter_below(&fence, &members);
                    self.settle(id, &fence);
                }
            }
            Up::Pairs { group, pairs } => {
                if let Some(group) = self.groups.get_mut(&group) {
                    group.collect(pairs);
                }
            }
            Up::Returned { process } => {
                if self.below(process.group, child).contains(process.rank) {
                    self.come_back(process);
                }
            }
        }
        self.resume();
    }

    /// The server above says something.
    pub fn handle_down(&mut self, message: Down) {
        match &message {
            Down::Answer { id, answer } => self.take_answer(*id, answer.clone()),
            Down::Departed { group, ranks } => {
                self.outbox.tell_children(&message);
                if let Some(found) = self.groups.get_mut(group) {
                    found.hear_of_departure(ranks);
                    self.settle_all(*group);
                }
            }
            Down::Fence {
                group,
                fence,
                members,
                failed,
                pairs,
            } => {
                self.outbox.tell_children(&message);
                if let Some(found) = self.groups.get_mut(group) {
                    found.spread(pairs);
                    let members = found.current(members.clone());
                    self.end_fence(*group, fence, &members, failed.map(Failure::Gone));
                }
            }
            Down::Pairs { group, pairs } => {
                self.outbox.tell_children(&message);
                if let Some(group) = self.groups.get_mut(group) {
                    group.spread(pairs);
                }
            }
            Down::Returned { process } => {
                self.outbox.tell_children(&message);
                if let Some(group) = self.groups.get_mut(&process.group) {
                    group.hear_of_return(process.rank);
                }
            }
        }
        self.resume();
    }

    /// A server directly below is gone, and with it all processes there and below it.
    pub fn handle_child_lost(&mut self, child: ChildId) {
        self.outbox.children.remove(&child);
        self.lost_children.insert(child);
        self.questions.forget_child(child);
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            let ranks = self.below(id, child);
            self.depart(id, &ranks, Absence::AgentLost);
        }
        if self.outbox.children.is_empty() && self.above == Above::Nobody {
            // Nobody is left to be told: what waited for that must not come after what is put from now on.
            for group in self.groups.values_mut() {
                let pairs = group.take_unsent();
                group.spread(&pairs);
            }
        }
        self.resume();
    }

    /// The server above is gone: whoever waits for what only the root can say gets an error, now and from now on.
    pub fn handle_parent_lost(&mut self) {
        self.above = Above::Lost;
        for asker in self.questions.take_all() {
            self.answer(asker, Answer::Lost);
        }
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.settle_all(id);
        }
        self.resume();
    }

    /// Takes the result of [`Action::Spawn`].
    pub fn handle_spawned(&mut self, id: SpawnId, result: Result<Spawned, SpawnRefused>) {
        self.take_answer(id.0, Answer::Spawned(result));
        self.resume();
    }

    /// Takes the answer to [`Action::AskNames`]: [`Answer::Done`], [`Answer::Value`] or [`Answer::Failed`].
    pub fn handle_name_answer(&mut self, id: NameQuestionId, answer: Answer) {
        self.take_answer(id.0, answer);
        self.resume();
    }

    /// The next action to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.outbox.poll()
    }

    /// How far a process of this host got; `None` if no process of its group has begun here, since most
    /// programs never do. Ask before its connection is closed: it waits in no fence after that.
    pub fn stage(&self, process: Process) -> Option<Stage> {
        Stage::of(self.group_of(process)?, process.rank)
    }

    /// Returns true if a process began with PMI and did not end it. If such a process is gone, it did not go
    /// well.
    pub fn is_unfinished(&self, process: Process) -> bool {
        self.phase(process) == Phase::Initialized
    }

    /// A process has a new connection: what it said before is forgotten.
    fn welcome(&mut self, process: Process) {
        if let Some(group) = self.groups.get_mut(&process.group) {
            group.phases.remove(&process.rank);
        }
        self.come_back(process);
    }

    fn close(&mut self, id: ConnectionId) {
        let process = self.connections.forget(id);
        self.outbox.push(Action::Close { connection: id });
        if let Some(process) = process {
            self.depart(
                process.group,
                &RankSet::range(process.rank, process.rank + 1),
                Absence::Closed,
            );
        }
    }

    fn break_off(&mut self, id: ConnectionId, error: ProtocolError) {
        let connection = self.connections.get(id);
        let process = connection.and_then(|connection| connection.process);
        self.outbox.push(Action::Misbehaved {
            connection: id,
            process,
            error,
        });
        self.close(id);
    }

    fn depart(&mut self, id: GroupId, ranks: &RankSet, how: Absence) {
        let above = self.above;
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let ranks = group.depart(ranks, how);
        if ranks.is_empty() {
            return;
        }
        match above {
            Above::Nobody if how >= Absence::Failed => {
                self.outbox.tell_children(&Down::Departed { group: id, ranks })
            }
            Above::Parent => self.outbox.tell_parent_of_departure(id, ranks, how),
            Above::Nobody | Above::Lost => {}
        }
        self.fail_stuck_node_waiters(id);
        self.settle_all(id);
    }

    fn come_back(&mut self, process: Process) {
        let above = self.above;
        let Some(group) = self.groups.get_mut(&process.group) else {
            return;
        };
        if !group.come_back(process.rank, above) {
            return;
        }
        match above {
            Above::Nobody => self.outbox.tell_children(&Down::Returned { process }),
            Above::Parent => self.outbox.tell_parent(Up::Returned { process }),
            Above::Lost => {}
        }
    }

    /// Answers with an error those who wait for a node attribute that nobody is left to put.
    fn fail_stuck_node_waiters(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        for waiter in group.take_stuck_waiters(&self.connections) {
            self.respond(waiter, &nobody_is_left());
        }
    }

    fn settle_all(&mut self, id: GroupId) {
        let fences = self.groups.get(&id).map(|group| group.fences.ids());
        for fence in fences.unwrap_or_default() {
            self.settle(id, &fence);
        }
    }

    fn settle(&mut self, id: GroupId, fence: &FenceId) {
        let above = self.above;
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let is_decided_here = above == Above::Nobody && fence.scope != FenceScope::Node;
        match group.settle(fence, above) {
            Settled::Waits => {
                if is_decided_here && group.fences.is_news(fence) {
                    let fence = fence.clone();
                    self.outbox.push(Action::FenceBegan { group: id, fence });
                }
            }
            Settled::Report { members } => {
                let pairs = group.take_unsent();
                let (pairs, ahead) = cut(pairs);
                for pairs in ahead {
                    self.outbox.tell_parent(Up::Pairs { group: id, pairs });
                }
                self.outbox.tell_parent(Up::Fence {
                    group: id,
                    fence: fence.clone(),
                    members,
                    pairs,
                });
            }
            Settled::Over { members, failure } => {
                if is_decided_here {
                    let pairs = group.take_unsent();
                    group.spread(&pairs);
                    let (pairs, ahead) = cut(pairs);
                    for pairs in ahead {
                        self.outbox.tell_children(&Down::Pairs { group: id, pairs });
                    }
                    let failed = match failure {
                        Some(Failure::Gone(rank)) => Some(rank),
                        Some(Failure::Lost) | None => None,
                    };
                    self.outbox.tell_children(&Down::Fence {
                        group: id,
                        fence: fence.clone(),
                        members: members.clone(),
                        failed,
                        pairs,
                    });
                    self.outbox.push(Action::FenceEnded {
                        group: id,
                        fence: fence.clone(),
                        members: members.len(),
                        failed,
                    });
                }
                self.end_fence(id, fence, &members, failure);
            }
        }
    }

    fn end_fence(&mut self, id: GroupId, fence: &FenceId, members: &RankSet, failure: Option<Failure>) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let (released, began) = group.fences.end(fence, members);
        let message = failure.map(|failure| match failure {
            Failure::Gone(rank) => BString::from(format!("rank_{rank}_is_gone")),
            Failure::Lost => "the_process_manager_lost_its_parent".into(),
        });
        let mut bridged = Vec::new();
        for (_, waiter) in released {
            let mut waiter = match waiter {
                FenceWaiter::Request(waiter) => waiter,
                FenceWaiter::Bridge(token) => {
                    bridged.push(token);
                    continue;
                }
            };
            let response = Response::Fence {
                tag: waiter.tag.take(),
                rc: match waiter.form {
                    Form::Line => message.as_ref().map(|_| -1),
                    Form::Block | Form::Frame => Some(if message.is_some() { -1 } else { 0 }),
                },
                message: message.clone(),
            };
            self.respond(waiter, &response);
        }
        self.end_bridged_fence(id, fence, bridged, failure);
        if began {
            self.settle(id, fence);
        }
    }

    fn below(&self, id: GroupId, child: ChildId) -> RankSet {
        let group = self.groups.get(&id);
        group.map(|group| group.below(child)).unwrap_or_default()
    }

    fn group_of(&self, process: Process) -> Option<&Group> {
        self.groups.get(&process.group)
    }

    fn phase(&self, process: Process) -> Phase {
        let group = self.group_of(process);
        group.map_or_else(Phase::default, |group| group.phase(process.rank))
    }

    /// Answers a request that waited.
    fn respond(&mut self, waiter: Waiter, response: &Response) {
        if self.connections.release(&waiter) {
            let Waiter { connection, form, .. } = waiter;
            self.outbox
                .send(connection, form, waiter.thread.as_ref(), response);
        }
    }
}

/// Cuts pairs so that none of the messages that they go into is too large: the last, and those ahead of it.
fn cut(pairs: KeyValuePairs) -> (KeyValuePairs, Vec<KeyValuePairs>) {
    let mut ahead = Vec::new();
    let mut rest = Vec::new();
    let mut size = 0;
    for (key, value) in pairs {
        size += key.len() + value.len();
        if size > Server::PAIRS_SIZE_MAX && !rest.is_empty() {
            ahead.push(std::mem::take(&mut rest));
            size = key.len() + value.len();
        }
        rest.push((key, value));
    }
    (rest, ahead)
}
