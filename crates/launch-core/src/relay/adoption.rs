//! How a job goes on without a host in the middle of its tree: those right below it go on below the launcher.
//!
//! Reports and orders that the lost node had taken and not handed on would be lost with it, and those that it
//! had handed on would come twice if they were said again. So in such jobs each end keeps what it said until
//! the other end is known to have it, and the nodes between the ends keep nothing: an agent keeps its reports
//! ([`Kept`]), the launcher what it told ([`Accounts`]), both under numbers by which the other end drops what
//! it has. The launcher alone decides whether a node lives: one that it has counted as lost is not adopted
//! any more, and ends itself.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::{
    protocol::{Down, OUTPUT_WINDOW, Order, Report, Stamp, Up},
    tree::{NodeId, Tree},
};

/// The reports of an agent that the launcher may not have. Their size is bounded by the bytes that may be
/// under way on the links up to the launcher, and by the launcher's delay in saying what it has.
#[derive(Debug)]
pub(super) struct Kept {
    node: NodeId,
    lanes: [Lane; 2],
    /// The number of the last of the launcher's messages that came.
    heard: u64,
    /// How many of them, and with how much input, since the launcher was last told.
    untold: usize,
    untold_bytes: usize,
    /// That of the message that comes next.
    pub(super) next_number: Option<u64>,
    /// Once is all: above the launcher there is nobody.
    pub(super) has_asked: bool,
}

/// Reports that keep their order.
#[derive(Debug, Default)]
struct Lane {
    said: u64,
    kept: VecDeque<Up>,
}

/// The lane in which a report is counted: output, and ends behind it, wait for credit, and all else overtakes
/// them.
fn lane(report: &Report) -> usize {
    usize::from(matches!(report, Report::Output { .. } | Report::Finished))
}

const CONTROL: usize = 0;
const OUTPUT: usize = 1;

impl Kept {
    /// After so many messages, or bytes of input, the launcher hears that they came.
    const UNTOLD_MAX: usize = 32;
    const UNTOLD_BYTES_MAX: usize = 64 << 10;

    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            lanes: Default::default(),
            heard: 0,
            untold: 0,
            untold_bytes: 0,
            next_number: None,
            has_asked: false,
        }
    }

    /// Counts and keeps a report of this agent's own.
    pub(super) fn keep(&mut self, up: &mut Up) {
        // These may be dropped on the way if there are too many.
        if matches!(up.report, Report::Trace { .. }) {
            return;
        }
        let after = match up.report {
            Report::Finished => self.lanes[CONTROL].said,
            _ => 0,
        };
        let lane = &mut self.lanes[lane(&up.report)];
        lane.said += 1;
        up.stamp = Some(Stamp {
            from: self.node,
            number: lane.said,
            heard: self.heard,
            after,
        });
        (self.untold, self.untold_bytes) = (0, 0);
        lane.kept.push_back(up.clone());
    }

    /// The launcher has so many.
    pub(super) fn acknowledge(&mut self, control: u64, output: u64) {
        for (lane, count) in self.lanes.iter_mut().zip([control, output]) {
            let has = |up: &Up| up.stamp.is_some_and(|stamp| stamp.number <= count);
            while lane.kept.front().is_some_and(has) {
                lane.kept.pop_front();
            }
        }
    }

    /// Returns true if the end of this agent was told and the launcher may not have heard of it.
    pub(super) fn has_end(&self) -> bool {
        let is_end = |up: &Up| matches!(up.report, Report::Finished) && self.node.host() == Some(up.host);
        self.lanes[OUTPUT].kept.back().is_some_and(is_end)
    }

    /// Unsays the end of this agent, if the launcher may not have heard of it. Returns whether it is to be said again.
    pub(super) fn take_back_end(&mut self) -> bool {
        let has_end = self.has_end();
        if has_end {
            let lane = &mut self.lanes[OUTPUT];
            lane.kept.pop_back();
            lane.said -= 1;
        }
        has_end
    }

    /// All that the launcher may not have, each lane in its order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Up> {
        self.lanes.iter().flat_map(|lane| &lane.kept)
    }

    pub(super) fn heard(&self) -> u64 {
        self.heard
    }

    /// A message of the launcher's has come. Returns whether it is the first time.
    pub(super) fn hear(&mut self, number: u64, down: &Down) -> bool {
        if number <= self.heard {
            return false;
        }
        self.heard = number;
        self.untold += 1;
        self.untold_bytes += match down {
            Down::Order(Order::Stdin(bytes)) | Down::To(_, Order::Stdin(bytes)) => bytes.len(),
            _ => 0,
        };
        true
    }

    /// Returns true if the launcher should hear which of its messages came.
    pub(super) fn has_untold(&self) -> bool {
        self.untold >= Self::UNTOLD_MAX || self.untold_bytes >= Self::UNTOLD_BYTES_MAX
    }
}

/// The messages that the launcher has told its agents, and the number of reports that it has from each.
#[derive(Debug)]
pub(super) struct Accounts {
    tree: Tree,
    told: u64,
    /// The messages that some agent may not have heard, with their numbers.
    log: VecDeque<(u64, Down)>,
    accounts: BTreeMap<NodeId, Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// How many reports came of each lane.
    taken: [u64; 2],
    heard: u64,
    /// How many reports, and with how much output, it may still keep although they came.
    unacknowledged: usize,
    unacknowledged_bytes: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Below the node that the tree says.
    #[default]
    InPlace,
    /// The node above it is lost. It has until then to come, once somebody has looked at the clock.
    Missing {
        until: Option<Duration>,
    },
    /// Right below the launcher.
    Adopted,
    Finished,
    Lost,
}

/// The novelty of a report that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is new.
    New,
    /// It came before.
    Known,
}

impl Accounts {
    /// After so many reports, or bytes of output, an agent hears that they came.
    const UNACKNOWLEDGED_MAX: usize = 32;
    const UNACKNOWLEDGED_BYTES_MAX: usize = OUTPUT_WINDOW / 4;

    pub(super) fn new(tree: Tree) -> Self {
        let nodes = tree.hosts_below(NodeId::ROOT).into_iter().map(NodeId::of);
        Self {
            tree,
            told: 0,
            log: VecDeque::new(),
            accounts: nodes.map(|node| (node, Account::default())).collect(),
        }
    }

    /// Counts and keeps what the launcher says.
    pub(super) fn tell(&mut self, down: &Down) -> u64 {
        self.told += 1;
        self.log.push_back((self.told, down.clone()));
        self.forget_heard();
        self.told
    }

    /// Takes a report. What comes out of order was lost somewhere, and will be said again.
    pub(super) fn take(&mut self, up: &Up) -> Taken {
        let Some(stamp) = up.stamp else {
            return Taken::New;
        };
        let told = self.told;
        let Some(account) = self.accounts.get_mut(&stamp.from) else {
            return Taken::Known;
        };
        if account.state == State::Lost {
            return Taken::Known;
        }
        account.unacknowledged += 1;
        account.unacknowledged_bytes += up.report.output_size();
        let has_heard = stamp.heard.min(told) > account.heard;
        if has_heard {
            account.heard = stamp.heard.min(told);
        }
        // An end overtakes what was lost before it and is said again: nothing of a host is taken after its end.
        let lane = lane(&up.report);
        let is_next =
            stamp.number.checked_sub(1) == Some(account.taken[lane]) && stamp.after <= account.taken[CONTROL];
        if is_next {
            account.taken[lane] += 1;
        }
        if is_next && matches!(up.report, Report::Finished) && stamp.from.host() == Some(up.host) {
            account.state = State::Finished;
            self.miss_those_below(stamp.from);
        }
        if has_heard {
            self.forget_heard();
        }
        if is_next { Taken::New } else { Taken::Known }
    }

    /// The acknowledgement of the reports that came from an agent, if it is time for one.
    pub(super) fn acknowledgement(&mut self, node: NodeId) -> Option<Down> {
        let account = self.accounts.get_mut(&node)?;
        let is_last = account.state == State::Finished;
        let is_due = is_last
            || account.unacknowledged >= Self::UNACKNOWLEDGED_MAX
            || account.unacknowledged_bytes >= Self::UNACKNOWLEDGED_BYTES_MAX;
        if !is_due {
            return None;
        }
        (account.unacknowledged, account.unacknowledged_bytes) = (0, 0);
        Some(Down::Acknowledged {
            node,
            control: account.taken[CONTROL],
            output: account.taken[OUTPUT],
            is_last,
        })
    }

    /// Returns true if somebody else than the launcher may say that a node is at its end. Nobody else may say
    /// so of a node that the launcher sees itself, or knows more of.
    pub(super) fn may_be_ended(&self, node: NodeId) -> bool {
        let account = self.accounts.get(&node);
        account.is_some_and(|account| matches!(account.state, State::InPlace | State::Missing { .. }))
    }

    /// Nobody will say anything more about this node, which never came.
    pub(super) fn handle_ended(&mut self, node: NodeId) {
        if let Some(account) = self.accounts.get_mut(&node) {
            account.state = State::Finished;
        }
    }

    /// A node is lost.
    pub(super) fn handle_lost(&mut self, node: NodeId) {
        if let Some(account) = self.accounts.get_mut(&node) {
            account.state = State::Lost;
        }
        self.miss_those_below(node);
        self.forget_heard();
    }

    /// Nothing comes through a node any more, and those below it have to come by themselves if they are not
    /// at their end.
    fn miss_those_below(&mut self, node: NodeId) {
        for child in self.tree.children(node).map(NodeId) {
            if let Some(account) = self.accounts.get_mut(&child)
                && account.state == State::InPlace
            {
                account.state = State::Missing { until: None };
            }
        }
    }

    /// Returns true if a node that is below another by the tree may be adopted.
    pub(super) fn may_adopt(&self, node: NodeId) -> bool {
        let account = self.accounts.get(&node);
        let is_below_another = self.tree.parent(node) != Some(NodeId::ROOT);
        is_below_another && account.is_some_and(|account| account.state != State::Lost)
    }

    /// A node is right below the launcher from now on, and has heard so much. Returns what it has not.
    pub(super) fn adopt(&mut self, node: NodeId, heard: u64) -> impl Iterator<Item = &(u64, Down)> {
        if let Some(account) = self.accounts.get_mut(&node) {
            account.heard = account.heard.max(heard.min(self.told));
            if account.state != State::Finished {
                account.state = State::Adopted;
            }
        }
        self.log.iter().filter(move |(number, _)| *number > heard)
    }

    /// When somebody has to look for those that are missing; at once if it is not known since when they are.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let states = self.accounts.values().map(|account| account.state);
        let until = states.filter_map(|state| match state {
            State::Missing { until } => Some(until.unwrap_or_default()),
            _ => None,
        });
        until.min()
    }

    /// Those that have been missing for too long. Whoever is missing from now on has `patience`.
    pub(super) fn overdue(&mut self, now: Duration, patience: Duration) -> Vec<NodeId> {
        let mut overdue = Vec::new();
        for (&node, account) in &mut self.accounts {
            if let State::Missing { until } = &mut account.state
                && *until.get_or_insert(now.saturating_add(patience)) <= now
            {
                overdue.push(node);
            }
        }
        overdue
    }

    /// Drops the messages that all agents whom they concern have heard.
    fn forget_heard(&mut self) {
        let accounts = &self.accounts;
        let has_heard = |account: &Account, number| {
            account.heard >= number || matches!(account.state, State::Finished | State::Lost)
        };
        let is_heard = |(number, down): &(u64, Down)| match down {
            Down::To(node, _) => accounts
                .get(node)
                .is_none_or(|account| has_heard(account, *number)),
            _ => accounts.values().all(|account| has_heard(account, *number)),
        };
        while self.log.front().is_some_and(is_heard) {
            self.log.pop_front();
        }
    }
}
