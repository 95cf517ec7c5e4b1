//! What a node of the tree does for the nodes below and above it: starts those below, and hands on what goes by.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ropewalk_group::HostId;
use ropewalk_pmi as pmi;

use crate::{
    protocol::{Down, OUTPUT_WINDOW, Order, Report, Up},
    tree::{NodeId, Tree},
};

/// A node's part in the tree, the launcher's as well as an agent's. `now` is any time that only grows.
///
/// Call [`start`](Self::start) once. Tell what happens with `handle_*` and what its own host says with
/// [`report`](Self::report), after each call do what [`poll_action`](Self::poll_action) says until it says nothing, and
/// call [`handle_timeout`](Self::handle_timeout) when [`deadline`](Self::deadline) has come.
///
/// Output goes up no faster than it is taken: each link has a window of [`OUTPUT_WINDOW`] bytes, so that a node holds
/// at most that many for each node below it, and [`own_output`](Self::own_output) says how much of its own host's waits.
/// Everything else goes by at once. What an agent says last, that it is finished, comes after its output and after the
/// last of everybody below it: a connection that ends then was not lost.
#[derive(Debug)]
pub(crate) struct Relay {
    tree: Tree,
    node: NodeId,
    detect: Duration,
    children: BTreeMap<NodeId, Child>,
    /// Output, and ends, that wait for credit, each with the child that it came from.
    waiting: VecDeque<(Option<NodeId>, Up)>,
    /// Below 0 after a message that was larger than what was left.
    credit: i64,
    own_output: usize,
    own: Own,
    parent: Parent,
    actions: VecDeque<Action>,
}

/// What has to be done for a [`Relay`].
#[derive(Debug)]
pub(crate) enum Action {
    /// End what starts or runs this agent, by force if need be: nothing more is expected of it.
    Abandon(NodeId),
    /// Tell this to the own host's agent.
    Local(Down),
    /// Tell this to the own PMI server.
    LocalPmi(NodeId, pmi::Up),
    /// Send this to a node right below.
    SendChild(NodeId, Down),
    /// Send this to the node above; at the root, it is for the launcher.
    SendParent(Up),
    /// Start the agent of a node right below.
    StartChild(NodeId),
}

#[derive(Debug)]
enum Child {
    /// It was started; what it has to hear waits.
    Starting {
        /// Until it has been told that this takes long.
        tell_at: Option<Duration>,
        give_up_at: Duration,
        unsent: Vec<Down>,
    },
    Connected,
    /// It is finished or lost.
    Over,
}

/// How far the own host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Busy,
    /// It is, but somebody below is not.
    Finished,
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Listening,
    /// It has heard all.
    Satisfied,
    Lost,
}

impl Relay {
    /// An agent has this many times the detection time to be started and to connect: a login takes longer than a sign
    /// of life. After once that time the user hears whom the job waits for.
    const START_PATIENCE: u32 = 10;

    /// The relay of one node of a job. The launcher has no host of its own.
    pub(crate) fn new(tree: Tree, node: NodeId, detect: Duration) -> Self {
        Self {
            tree,
            node,
            detect,
            children: BTreeMap::new(),
            waiting: VecDeque::new(),
            credit: OUTPUT_WINDOW as i64,
            own_output: 0,
            own: if node == NodeId::ROOT {
                Own::Told
            } else {
                Own::Busy
            },
            parent: Parent::Listening,
            actions: VecDeque::new(),
        }
    }

    /// Starts the agents right below.
    pub(crate) fn start(&mut self, now: Duration) {
        for child in self.tree.children(self.node).map(NodeId) {
            let starting = Child::Starting {
                tell_at: Some(now + self.detect),
                give_up_at: now + self.detect * Self::START_PATIENCE,
                unsent: Vec::new(),
            };
            self.children.insert(child, starting);
            self.actions.push_back(Action::StartChild(child));
        }
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When an agent has taken long, or too long, to start.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let starting = self.children.values().filter_map(|child| match child {
            Child::Starting {
                tell_at, give_up_at, ..
            } => Some(tell_at.unwrap_or(*give_up_at)),
            _ => None,
        });
        starting.min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        for (node, child) in &mut self.children {
            if let Child::Starting { tell_at, .. } = child
                && tell_at.take_if(|at| *at <= now).is_some()
                && let Some(host) = node.host()
            {
                let report = Report::Late;
                self.actions.push_back(Action::SendParent(Up { host, report }));
            }
        }
        let is_late =
            |child: &Child| matches!(child, Child::Starting { give_up_at, .. } if *give_up_at <= now);
        let late = self
            .children
            .iter()
            .filter(|(_, child)| is_late(child))
            .map(|(&node, _)| node);
        for node in late.collect::<Vec<_>>() {
            let how = format!(
                "did not come up within {} s",
                (self.detect * Self::START_PATIENCE).as_secs_f64()
            );
            self.handle_child_lost(node, how);
        }
    }

    /// Whether this node has nothing more to do: all was told to the node above, or there is none any more.
    pub(crate) fn is_over(&self) -> bool {
        let told = match self.parent {
            Parent::Listening => false,
            Parent::Satisfied => true,
            Parent::Lost => self.own != Own::Busy,
        };
        told && self.are_children_over()
    }

    /// Whether a node right below is expected to connect.
    pub(crate) fn is_awaited(&self, node: NodeId) -> bool {
        matches!(self.children.get(&node), Some(Child::Starting { .. }))
    }

    /// An agent right below has connected.
    pub(crate) fn handle_connected(&mut self, node: NodeId) {
        let Some(child @ Child::Starting { .. }) = self.children.get_mut(&node) else {
            return;
        };
        if let Child::Starting { unsent, .. } = std::mem::replace(child, Child::Connected) {
            let unsent = unsent.into_iter().map(|down| Action::SendChild(node, down));
            self.actions.extend(unsent);
        }
    }

    /// An agent right below sent this. Nothing of one counts that is over.
    pub(crate) fn handle_up(&mut self, child: NodeId, up: Up) {
        if !matches!(self.children.get(&child), Some(Child::Connected)) {
            return;
        }
        let is_last = matches!(up.report, Report::Finished) && NodeId::of(up.host) == child;
        if is_last {
            self.children.insert(child, Child::Over);
            self.actions.push_back(Action::SendChild(child, Down::Bye));
        }
        match up.report {
            Report::Pmi(up) => self.actions.push_back(Action::LocalPmi(child, up)),
            Report::Output { .. } | Report::Finished => self.waiting.push_back((Some(child), up)),
            _ => self.actions.push_back(Action::SendParent(up)),
        }
        self.send_waiting();
    }

    /// The node above sent this.
    pub(crate) fn handle_down(&mut self, down: Down) {
        match down {
            Down::Bye => self.parent = Parent::Satisfied,
            Down::Credit(size) => {
                self.credit += i64::from(size);
                self.send_waiting();
            }
            Down::Order(Order::Signal { rank: None, .. }) => self.end(down),
            Down::To(node, order) => self.send_to(node, order),
            Down::Pmi(_) => self.actions.push_back(Action::Local(down)),
            down => self.send_all(down),
        }
    }

    /// Something for one node.
    fn send_to(&mut self, node: NodeId, order: Order) {
        if node == self.node {
            self.actions.push_back(Action::Local(Down::Order(order)));
        } else if let Some(child) = self.tree.towards(self.node, node) {
            self.send_child(child, Down::To(node, order));
        }
    }

    /// The agent right below is gone, or could not be started; `how` says what was seen of it.
    pub(crate) fn handle_child_lost(&mut self, node: NodeId, how: String) {
        let known = self.children.get_mut(&node);
        let Some(child @ (Child::Starting { .. } | Child::Connected)) = known else {
            return;
        };
        *child = Child::Over;
        self.actions.push_back(Action::Abandon(node));
        let host = node
            .host()
            .expect("only the root is no host, and it is nobody's child");
        let report = Report::Lost { how };
        self.actions.push_back(Action::SendParent(Up { host, report }));
        self.send_waiting();
    }

    /// The own PMI server says something to that of a node right below.
    pub(crate) fn send_pmi(&mut self, child: NodeId, down: pmi::Down) {
        self.send_child(child, Down::Pmi(down));
    }

    /// The node above is gone: nobody wants this job any more.
    pub(crate) fn handle_parent_lost(&mut self, signal: i32) {
        if self.parent != Parent::Listening {
            return;
        }
        // What waits goes nowhere from now on, and those below get their credit for it: they must come to their end.
        self.parent = Parent::Lost;
        self.end(Down::Order(Order::Signal { rank: None, signal }));
    }

    /// Nothing more is expected of those who are not over yet: they are ended by force.
    pub(crate) fn abandon_all(&mut self) {
        for (node, child) in self.children.iter_mut().map(|(&node, child)| (node, child)) {
            if !matches!(child, Child::Over) {
                *child = Child::Over;
                self.actions.push_back(Action::Abandon(node));
            }
        }
    }

    /// The own host says something.
    pub(crate) fn report(&mut self, host: HostId, report: Report) {
        match report {
            Report::Finished => {
                self.own = Own::Finished;
                self.send_waiting();
            }
            report if report.output_size() > 0 && self.parent != Parent::Lost => {
                self.own_output += report.output_size();
                self.waiting.push_back((None, Up { host, report }));
                self.send_waiting();
            }
            report => self.actions.push_back(Action::SendParent(Up { host, report })),
        }
    }

    /// How many bytes of output wait here, also of others.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting.iter().map(|(_, up)| up.report.output_size()).sum()
    }

    /// How many bytes of the own host's output wait: above [`OUTPUT_WINDOW`] no more should be read.
    pub(crate) fn own_output(&self) -> usize {
        self.own_output
    }

    /// Whether output waits to be taken.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether every agent right below is finished, lost, or given up.
    pub(crate) fn are_children_over(&self) -> bool {
        self.children.values().all(|child| matches!(child, Child::Over))
    }

    /// Those who are still starting need not come any more.
    fn end(&mut self, order: Down) {
        let starting = |child: &Child| matches!(child, Child::Starting { .. });
        let starting = self
            .children
            .iter()
            .filter(|(_, child)| starting(child))
            .map(|(&node, _)| node);
        for node in starting.collect::<Vec<_>>() {
            self.children.insert(node, Child::Over);
            self.actions.push_back(Action::Abandon(node));
            for host in self.tree.hosts_below(node) {
                let report = Report::Finished;
                self.waiting.push_back((None, Up { host, report }));
            }
        }
        self.send_all(order);
        self.send_waiting();
    }

    fn send_all(&mut self, down: Down) {
        let children: Vec<_> = self.children.keys().copied().collect();
        for child in children {
            self.send_child(child, down.clone());
        }
        if self.node != NodeId::ROOT {
            self.actions.push_back(Action::Local(down));
        }
    }

    fn send_child(&mut self, child: NodeId, down: Down) {
        match self.children.get_mut(&child) {
            Some(Child::Starting { unsent, .. }) => unsent.push(down),
            Some(Child::Connected) => self.actions.push_back(Action::SendChild(child, down)),
            Some(Child::Over) | None => {}
        }
    }

    /// One message more than the credit allows may go, so that none is too large to go at all.
    fn send_waiting(&mut self) {
        while let Some((from, up)) = self.waiting.pop_front() {
            let size = up.report.output_size();
            if size > 0 && self.credit <= 0 && self.parent != Parent::Lost {
                self.waiting.push_front((from, up));
                return;
            }
            self.credit -= size as i64;
            match from {
                _ if size == 0 => {}
                Some(child) => self.send_child(child, Down::Credit(size as u32)),
                None => self.own_output -= size,
            }
            self.actions.push_back(Action::SendParent(up));
        }
        if self.own == Own::Finished && self.are_children_over() {
            self.own = Own::Told;
            if let Some(host) = self.node.host() {
                let report = Report::Finished;
                self.actions.push_back(Action::SendParent(Up { host, report }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
