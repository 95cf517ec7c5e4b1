//! A node of the tree, as it serves those below and above it: it starts those below, and hands on what goes by.

mod adoption;
mod orphans;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;

use crate::{
    protocol::{Down, OUTPUT_WINDOW, Order, Plan, Report, Up},
    tree::{NodeId, Tree},
};
use adoption::{Accounts, Kept};

/// A node's part in the tree, the launcher's as well as an agent's. `now` is any time that only grows.
///
/// Call [`start`](Self::start) once. Tell what happens with `handle_*` and what its own host says with
/// [`report`](Self::report), after each call do what [`poll_action`](Self::poll_action) says until it says nothing,
/// and call [`handle_timeout`](Self::handle_timeout) when [`deadline`](Self::deadline) has come.
///
/// Output goes up no faster than it is taken: each link has a window of [`OUTPUT_WINDOW`] bytes, so that a node holds
/// at most that many for each node below it, and [`own_output`](Self::own_output) says how much of its own host's
/// waits. Everything else goes by at once. What an agent says last, that it is finished, comes after its output and
/// after the last of everybody below it: a connection that ends then was not lost.
///
/// In a job that adopts, an agent that loses the node above asks the launcher to be that, and all goes
/// on: what was under way through the lost node is said again, and who has it already drops it.
#[derive(Debug)]
pub struct Relay {
    tree: Tree,
    node: NodeId,
    detect: Duration,
    start_timeout: Duration,
    children: BTreeMap<NodeId, Child>,
    /// Those of this host: their ranks may run before they connect.
    beside: BTreeSet<NodeId>,
    /// Output, and ends, that wait for credit, each with the child that it came from.
    waiting: VecDeque<(Option<NodeId>, Up)>,
    /// Below 0 after a message that was larger than what was left.
    credit: i64,
    own_output: usize,
    own: Own,
    parent: Parent,
    /// At an agent of a job that adopts.
    kept: Option<Kept>,
    /// At the launcher of a job that adopts.
    accounts: Option<Accounts>,
    actions: VecDeque<Action>,
}

/// Something to do for a [`Relay`].
#[derive(Debug)]
pub enum Action {
    /// End what starts or runs this agent, by force if need be: nothing more is expected of it.
    Abandon(NodeId),
    /// The launcher is the node above from now on: whoever started this agent matters no more.
    Adopted,
    /// Tell this to the own host's agent.
    Local(Down),
    /// Tell this to the own PMI server.
    LocalPmi(NodeId, pmi::Up),
    /// There is no node above any more.
    LoseParent,
    /// Connect to the launcher in place of the node above; what is to be sent there follows.
    SeekLauncher,
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
    /// It has said so, and waits to hear that the launcher knows.
    Finished,
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
    /// It was lost, and the launcher is asked to be it; how long, once somebody has looked at the clock, and with
    /// which signal all ends if it does not answer.
    Seeking {
        until: Option<Duration>,
        signal: i32,
    },
    /// It has heard all.
    Satisfied,
    Lost,
}

impl Relay {
    /// The relay of one node of a job. The launcher has no host of its own. An agent has `start_timeout` to be
    /// started and to connect; after the detection time the user hears whom the job waits for.
    pub fn new(tree: Tree, node: NodeId, detect: Duration, start_timeout: Duration) -> Self {
        Self {
            tree,
            node,
            detect,
            start_timeout,
            children: BTreeMap::new(),
            beside: BTreeSet::new(),
            waiting: VecDeque::new(),
            credit: OUTPUT_WINDOW as i64,
            own_output: 0,
            own: if node == NodeId::ROOT {
                Own::Told
            } else {
                Own::Busy
            },
            parent: Parent::Listening,
            kept: None,
            accounts: None,
            actions: VecDeque::new(),
        }
    }

    /// The same, as the plan of the job says.
    pub fn of(plan: &Plan, node: NodeId) -> Self {
        let numbered = (0..).map(HostId).zip(&plan.hosts);
        let beside = numbered.filter(|(_, host)| host.is_local && node == NodeId::ROOT);
        let relay = Self {
            beside: beside.map(|(host, _)| NodeId::of(host)).collect(),
            ..Self::new(plan.tree(), node, plan.detect, plan.start_timeout)
        };
        relay.adopting(plan.adopts())
    }

    /// Says if this is a job in which agents go on whose node above is lost: all of its nodes must know.
    fn adopting(mut self, adopts: bool) -> Self {
        let is_root = self.node == NodeId::ROOT;
        self.kept = (adopts && !is_root).then(|| Kept::new(self.node));
        self.accounts = (adopts && is_root).then(|| Accounts::new(self.tree));
        self
    }

    /// Starts the agents right below.
    pub fn start(&mut self, now: Duration) {
        for child in self.tree.children(self.node).map(NodeId) {
            let starting = Child::Starting {
                tell_at: (self.detect < self.start_timeout).then(|| now.saturating_add(self.detect)),
                give_up_at: now.saturating_add(self.start_timeout),
                unsent: Vec::new(),
            };
            self.children.insert(child, starting);
            self.actions.push_back(Action::StartChild(child));
        }
    }

    /// The next thing that has to be done for this machine.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When an agent has taken long, or too long, to start, or to be adopted.
    pub fn deadline(&self) -> Option<Duration> {
        let starting = self.children.values().filter_map(|child| match child {
            Child::Starting {
                tell_at, give_up_at, ..
            } => Some(tell_at.unwrap_or(*give_up_at)),
            _ => None,
        });
        let seeking = match self.parent {
            Parent::Seeking { until, .. } => Some(until.unwrap_or_default()),
            _ => None,
        };
        let missing = self.accounts.as_ref().and_then(Accounts::deadline);
        starting.chain(seeking).chain(missing).min()
    }

    /// The time has come that [`deadline`](Self::deadline) named.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.look_for_missing(now);
        if let Parent::Seeking { until, signal } = &mut self.parent
            && *until.get_or_insert(now.saturating_add(self.detect)) <= now
        {
            let signal = *signal;
            self.lose_parent(signal);
        }
        let mut late = Vec::new();
        for (node, child) in &mut self.children {
            if let Child::Starting { tell_at, .. } = child
                && tell_at.take_if(|at| *at <= now).is_some()
                && let Some(host) = node.host()
            {
                late.push(host);
            }
        }
        for host in late {
            self.report_own(host, Report::Late);
        }
        let is_late =
            |child: &Child| matches!(child, Child::Starting { give_up_at, .. } if *give_up_at <= now);
        let late = self
            .children
            .iter()
            .filter(|(_, child)| is_late(child))
            .map(|(&node, _)| node);
        for node in late.collect::<Vec<_>>() {
            let how = format!("did not come up within {} s", self.start_timeout.as_secs_f64());
            self.handle_child_lost(node, how);
        }
    }

    /// Says if this node has nothing more to do: all was told to the node above, or there is none any more.
    pub fn is_over(&self) -> bool {
        let told = match self.parent {
            Parent::Listening | Parent::Seeking { .. } => false,
            Parent::Satisfied => true,
            Parent::Lost => self.own != Own::Busy,
        };
        told && self.are_children_over()
    }

    /// Says if an agent below which there is none has said all, if all that it waits for is to hear that this has
    /// come.
    pub fn has_said_all(&self) -> bool {
        self.own == Own::Told && self.children.is_empty() && !self.adopts()
    }

    /// Says if a node right below is expected to connect.
    pub fn is_awaited(&self, node: NodeId) -> bool {
        matches!(self.children.get(&node), Some(Child::Starting { .. }))
    }

    /// Returns true if a node right below has connected, and hears what is said to it.
    pub fn is_listening(&self, node: NodeId) -> bool {
        matches!(self.children.get(&node), Some(Child::Connected | Child::Finished))
    }

    /// An agent right below has connected.
    pub fn handle_connected(&mut self, node: NodeId) {
        let Some(child @ Child::Starting { .. }) = self.children.get_mut(&node) else {
            return;
        };
        if let Child::Starting { unsent, .. } = std::mem::replace(child, Child::Connected) {
            let unsent = unsent.into_iter().map(|down| Action::SendChild(node, down));
            self.actions.extend(unsent);
        }
    }

    /// An agent right below sent this. Nothing of one counts that is over.
    pub fn handle_up(&mut self, child: NodeId, up: Up) {
        if let Report::Orphaned { heard } = up.report {
            return self.adopt(child, heard);
        }
        if !self.is_listening(child) {
            return;
        }
        let is_last = matches!(up.report, Report::Finished) && child.host() == Some(up.host);
        // Without a node above nobody will say that the launcher knows.
        if is_last && self.adopts() && self.parent != Parent::Lost {
            self.children.insert(child, Child::Finished);
        } else if is_last {
            self.children.insert(child, Child::Over);
            self.actions.push_back(Action::SendChild(child, Down::Bye));
        }
        let from = up.stamp.map(|stamp| stamp.from);
        if self.takes(&up) {
            match up.report {
                Report::Pmi(up) if !self.adopts() => self.actions.push_back(Action::LocalPmi(child, up)),
                Report::Output { .. } | Report::Finished => self.waiting.push_back((Some(child), up)),
                _ => self.send_parent(up),
            }
        } else if up.report.output_size() > 0 {
            // It took room on the link.
            self.send_child(child, Down::Credit(up.report.output_size() as u32), None);
        }
        if let Some(down) = from.and_then(|from| self.accounts.as_mut()?.acknowledgement(from)) {
            self.hand_on_acknowledgement(down);
        }
        self.send_waiting();
    }

    /// The node above sent this.
    pub fn handle_down(&mut self, down: Down) {
        match down {
            Down::Acknowledged { .. } => self.hand_on_acknowledgement(down),
            Down::Adopted => self.go_on(),
            Down::Bye => self.parent = Parent::Satisfied,
            Down::Credit(size) => {
                self.credit += i64::from(size);
                self.send_waiting();
            }
            Down::Number(number) => {
                if let Some(kept) = &mut self.kept {
                    kept.next_number = Some(number);
                }
            }
            Down::Resend => self.say_again(),
            down => self.obey(down),
        }
    }

    /// The launcher says something.
    fn obey(&mut self, down: Down) {
        let number = match (&mut self.accounts, &mut self.kept) {
            (Some(accounts), _) => Some(accounts.tell(&down)),
            (None, Some(kept)) => match kept.next_number.take() {
                Some(number) if !kept.hear(number, &down) => return,
                number => number,
            },
            (None, None) => None,
        };
        match down {
            Down::Order(Order::Signal { rank: None, .. }) => self.end(down, number),
            Down::To(node, order) => self.send_to(node, order, number),
            Down::Pmi(_) if !self.adopts() => self.actions.push_back(Action::Local(down)),
            down => self.send_all(down, number),
        }
        if let (Some(kept), Some(host)) = (&self.kept, self.node.host())
            && kept.has_untold()
        {
            self.report_own(host, Report::Heard);
        }
    }

    /// Something for one node.
    fn send_to(&mut self, node: NodeId, order: Order, number: Option<u64>) {
        if node == self.node {
            self.actions.push_back(Action::Local(Down::Order(order)));
        } else if let Some(child) = self.towards(node) {
            self.send_child(child, Down::To(node, order), number);
        }
    }

    /// The node right below on the way to one further below.
    fn towards(&self, node: NodeId) -> Option<NodeId> {
        let mut step = node;
        while !self.children.contains_key(&step) {
            step = self.tree.parent(step)?;
        }
        Some(step)
    }

    /// The agent right below is gone, or could not be started; `how` says what was seen of it.
    pub fn handle_child_lost(&mut self, node: NodeId, how: String) {
        let child = match self.children.get_mut(&node) {
            // Of one that is finished, what it said last may be lost too.
            Some(child @ (Child::Starting { .. } | Child::Connected | Child::Finished)) => child,
            Some(Child::Over) | None => return,
        };
        *child = Child::Over;
        self.actions.push_back(Action::Abandon(node));
        let host = node
            .host()
            .expect("only the root is no host, and it is nobody's child");
        if let Some(accounts) = &mut self.accounts {
            accounts.handle_lost(node);
        }
        self.report_own(host, Report::Lost { how });
        self.send_waiting();
    }

    /// The own PMI server says something to that of a node right below.
    pub fn send_pmi(&mut self, child: NodeId, down: pmi::Down) {
        self.send_child(child, Down::Pmi(down), None);
    }

    /// The node above is gone: nobody wants this job any more, and all ends with this signal, if the launcher does
    /// not.
    pub fn handle_parent_lost(&mut self, signal: i32) {
        let is_listening = self.parent == Parent::Listening;
        if matches!(self.parent, Parent::Satisfied | Parent::Lost)
            || (is_listening && self.seek_launcher(signal))
        {
            return;
        }
        self.lose_parent(signal);
    }

    fn lose_parent(&mut self, signal: i32) {
        // What waits goes nowhere from now on, and those below get their credit for it: they must come to their end.
        self.parent = Parent::Lost;
        self.actions.push_back(Action::LoseParent);
        for (&node, child) in &mut self.children {
            if matches!(child, Child::Finished) {
                *child = Child::Over;
                self.actions.push_back(Action::SendChild(node, Down::Bye));
            }
        }
        self.end(Down::Order(Order::Signal { rank: None, signal }), None);
    }

    /// Nothing more is expected of those who are not over yet: they are ended by force.
    pub fn abandon_all(&mut self) {
        for (node, child) in self.children.iter_mut().map(|(&node, child)| (node, child)) {
            if !matches!(child, Child::Over) {
                *child = Child::Over;
                self.actions.push_back(Action::Abandon(node));
            }
        }
    }

    /// The own host says something.
    pub fn report(&mut self, host: HostId, report: Report) {
        match report {
            Report::Finished => {
                self.own = Own::Finished;
                self.send_waiting();
            }
            report if report.output_size() > 0 && self.parent != Parent::Lost => {
                self.own_output += report.output_size();
                self.waiting.push_back((None, plain(host, report)));
                self.send_waiting();
            }
            report => self.report_own(host, report),
        }
    }

    /// How many bytes of output wait here, also of others.
    pub fn held_output(&self) -> usize {
        self.waiting.iter().map(|(_, up)| up.report.output_size()).sum()
    }

    /// How many bytes of the own host's output wait: above [`OUTPUT_WINDOW`] no more should be read.
    pub fn own_output(&self) -> usize {
        self.own_output
    }

    /// Says if output waits to be taken.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Says if every agent right below is finished, lost, or given up.
    pub fn are_children_over(&self) -> bool {
        let is_over = |child: &Child| matches!(child, Child::Finished | Child::Over);
        self.children.values().all(is_over)
    }

    /// Those who are still starting need not come any more, but on this host, where they come at once and hear it
    /// then.
    fn end(&mut self, order: Down, number: Option<u64>) {
        let starting = |child: &Child| matches!(child, Child::Starting { .. });
        let starting = self
            .children
            .iter()
            .filter(|(node, child)| starting(child) && !self.beside.contains(node))
            .map(|(&node, _)| node);
        for node in starting.collect::<Vec<_>>() {
            self.children.insert(node, Child::Over);
            self.actions.push_back(Action::Abandon(node));
            for host in self.tree.hosts_below(node) {
                if let Some(accounts) = &mut self.accounts {
                    accounts.handle_ended(NodeId::of(host));
                }
                self.waiting.push_back((None, plain(host, Report::Finished)));
            }
        }
        self.send_all(order, number);
        self.send_waiting();
    }

    fn send_all(&mut self, down: Down, number: Option<u64>) {
        let children: Vec<_> = self.children.keys().copied().collect();
        for child in children {
            self.send_child(child, down.clone(), number);
        }
        if self.node != NodeId::ROOT {
            self.actions.push_back(Action::Local(down));
        }
    }

    fn send_child(&mut self, child: NodeId, down: Down, number: Option<u64>) {
        let downs = number.map(Down::Number).into_iter().chain([down]);
        match self.children.get_mut(&child) {
            Some(Child::Starting { unsent, .. }) => unsent.extend(downs),
            Some(Child::Connected | Child::Finished) => {
                let actions = downs.map(|down| Action::SendChild(child, down));
                self.actions.extend(actions);
            }
            Some(Child::Over) | None => {}
        }
    }

    /// Something that this node itself has to say.
    fn report_own(&mut self, host: HostId, report: Report) {
        let mut up = plain(host, report);
        if let Some(kept) = &mut self.kept {
            kept.keep(&mut up);
        }
        self.send_parent(up);
    }

    /// Words that go nowhere while there is nobody above are said again by whoever said them.
    fn send_parent(&mut self, up: Up) {
        if !matches!(self.parent, Parent::Seeking { .. }) {
            self.actions.push_back(Action::SendParent(up));
        }
    }

    /// One message more than the credit allows may go, so that none is too large to go at all.
    fn send_waiting(&mut self) {
        if matches!(self.parent, Parent::Seeking { .. }) {
            return;
        }
        while let Some((from, up)) = self.waiting.pop_front() {
            let size = up.report.output_size();
            if size > 0 && self.credit <= 0 && self.parent != Parent::Lost {
                self.waiting.push_front((from, up));
                return;
            }
            self.credit -= size as i64;
            match from {
                _ if size == 0 => {}
                Some(child) => self.send_child(child, Down::Credit(size as u32), None),
                None => self.own_output -= size,
            }
            match from {
                Some(_) => self.send_parent(up),
                None => self.report_own(up.host, up.report),
            }
        }
        if self.own == Own::Finished && self.are_children_over() {
            self.own = Own::Told;
            if let Some(host) = self.node.host() {
                self.report_own(host, Report::Finished);
            }
        }
    }
}

fn plain(host: HostId, report: Report) -> Up {
    let stamp = None;
    Up { host, stamp, report }
}

#[cfg(test)]
mod tests;
