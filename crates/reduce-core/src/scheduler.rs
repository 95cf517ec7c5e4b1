use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    ids::{Member, PlanId, Session, ShareId, Site, Term, Token},
    message::{FromScheduler, Standing, ToScheduler},
    planner::{Costs, Order},
    rates::{RateBounds, RateTable},
};

mod collective;
mod detours;
mod rows;
mod spreading;

use collective::Collective;
use detours::Troubles;

/// A collective as a member calls it. All members have to call it alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Bytes of each contribution.
    pub bytes: u64,
    /// Bytes of an element, which is never cut.
    pub element_bytes: u32,
    /// The contributions that the result is of.
    pub contributions: Contributions,
    /// The rank that gets the result, by its place in the group.
    pub root: Member,
    /// All ranks get the result, from the root.
    pub is_spread: bool,
    /// The order of folding.
    pub order: Order,
    /// A digest of the operation and the type of its elements.
    pub operation: u64,
    /// The answer to the loss of contributions with all their copies.
    pub on_loss: OnLoss,
    /// The answer to the loss of the root.
    pub on_root_loss: OnRootLoss,
}

/// The contributions of a collective, and how they make its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contributions {
    /// Each rank of the group makes one: the member of its own number. They are folded.
    #[default]
    Each,
    /// So many, each of which any number of ranks may hold, as files that all can read. They are folded. The collective
    /// begins when all ranks that live have told which ones they hold, and none is lost while a rank that holds it
    /// lives.
    Shared(u32),
    /// This rank makes the only one, which is the result.
    One(Member),
    /// Each rank makes one. The result holds them side by side, in the order of the ranks.
    SideBySide,
}

impl Call {
    /// The most bytes of a contribution that comes with its announcement.
    pub const ENCLOSED_BYTES_MAX: u64 = 8 << 10;
    /// The most bytes that come so from a whole group.
    pub const ENCLOSED_IN_ALL_MAX: u64 = 256 << 10;

    /// Says if the contributions of a group of so many ranks are so short that they come with their announcements. If
    /// all did, the scheduler hands them to the root with its row, and nobody else has a part in the plan.
    pub fn may_be_enclosed(&self, ranks: usize) -> bool {
        self.contributions == Contributions::Each
            && self.bytes <= Self::ENCLOSED_BYTES_MAX
            && self.bytes.saturating_mul(ranks as u64) <= Self::ENCLOSED_IN_ALL_MAX
    }

    /// The most bytes of a result that goes with the end of its session to all. Each rank keeps it as long as the end:
    /// a new scheduler may have to tell it to others.
    pub const RESULT_BYTES_MAX: u64 = 1 << 10;

    /// Says if the result for all ranks of a group of so many is so short that it goes with the end.
    pub fn may_end_with_result(&self, ranks: usize) -> bool {
        self.is_spread
            && self.contributions != Contributions::SideBySide
            && self.bytes <= Self::RESULT_BYTES_MAX
            && self.bytes.saturating_mul(ranks as u64) <= Self::ENCLOSED_IN_ALL_MAX
    }
}

impl Contributions {
    /// The most contributions that are shared: a row has to name each, and must fit into one message.
    pub const SHARED_MAX: u32 = 16_384;

    /// The numbers of the members in a group of so many ranks.
    pub fn members(self, ranks: usize) -> Range<u32> {
        match self {
            Self::Each | Self::SideBySide => 0..ranks as u32,
            Self::Shared(count) => 0..count,
            Self::One(member) => member.0..member.0.saturating_add(1),
        }
    }

    /// The number of blocks of the result in a group of so many ranks.
    pub fn blocks(self, ranks: usize) -> u32 {
        match self {
            Self::SideBySide => ranks as u32,
            Self::Each | Self::Shared(_) | Self::One(_) => 1,
        }
    }

    /// Any rank may hold any of them; otherwise each is of the rank of its number.
    pub fn are_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Says if a share may have these members.
    pub(crate) fn is_share(self, share: ShareId, members: &[Member]) -> bool {
        self != Self::SideBySide || *members == [Member(share.0)]
    }
}

/// The answer to the loss of contributions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// The session ends with [`End::Lost`] on all ranks.
    #[default]
    Fail,
    /// The session goes on without those members, all chunks alike; [`End::Done`] lists them.
    Exclude,
}

/// The answer to the loss of the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnRootLoss {
    /// The session ends with [`End::RootLost`] on all ranks.
    #[default]
    Fail,
    /// This member gets the result, unless it is lost too. Originals are kept until the end, so that it starts from
    /// nothing.
    MoveTo(Member),
    /// The lowest rank of the group that lives gets the result, which starts from nothing.
    MoveToLowest,
}

/// Who takes part, as decided so far. It changes when the root moves or members are excluded, and everything begins
/// anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Counts the changes.
    pub generation: u32,
    /// The rank that gets the result, by its place in the group.
    pub root: Member,
    /// Members whose contributions are lost, ascending.
    pub excluded: Vec<Member>,
}

/// How a session ends, on all its sites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The root holds the result.
    Done {
        /// The rank that has it, by its place in the group.
        root: Member,
        /// The members that are not in it, ascending.
        excluded: Vec<Member>,
    },
    /// The rank at this place in the group called another collective than the others.
    Mismatch(Member),
    /// The contributions of these members are lost, with all their copies.
    Lost(Vec<Member>),
    /// The root is lost.
    RootLost,
    /// It cannot be done.
    Failed(Failure),
    /// A member gave it up.
    GivenUp {
        /// The member.
        member: Member,
        /// Its reason.
        reason: GiveUp,
        /// The ranks, by their places in the group, whose contributions had not come by then, ascending.
        missing: Vec<Member>,
    },
}

/// The reason for which nobody can do what was called for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The operation failed or panicked.
    Operation {
        /// The site where it did.
        site: Site,
        /// The error, in its own words.
        why: String,
    },
    /// A contribution that a site said it holds cannot be read there.
    Source {
        /// The site.
        site: Site,
        /// The error, in its own words.
        why: String,
    },
    /// The tokens of a chunk or of the result do not add up: a contribution is missing or doubled.
    Tokens,
    /// These sites live and do not reach each other, and other pairs neither.
    Unreachable(Site, Site),
}

/// The reason for which a member gives a session up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GiveUp {
    /// Its time-out has passed.
    TimedOut,
    /// It cannot contribute, for this reason.
    Withdrawn(String),
    /// It leaves the job, for this reason, and takes part in nothing any more.
    Left(String),
}

/// Something that a driver has to do for a [`Scheduler`].
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerAction {
    /// Send to a site, which may be this very one.
    Send(Site, FromScheduler),
}

/// The seat that decides who sends what to whom. It is needed only when something changes.
///
/// Inputs are the `handle_*` functions; `now` never goes back. After each, the caller takes the actions from
/// [`poll_action`](Self::poll_action) until there is none, and calls [`handle_timeout`](Self::handle_timeout) at
/// [`poll_timeout`](Self::poll_timeout).
///
/// The first seat starts by [`new`](Self::new). When its site is lost, the lowest rank that is left starts another
/// one by [`take_over`](Self::take_over), which asks all living sites for their standing before it decides
/// anything. Two seats have two terms: the higher site has the higher one.
///
/// A decision costs O(p log p) for p sites, and is made once for each change: an announcement, a loss, a link that
/// failed.
#[derive(Debug)]
pub struct Scheduler {
    term: Term,
    /// The sites of each group's members.
    groups: BTreeMap<u64, Vec<Site>>,
    view: View,
    /// The sites whose standing a new seat waits for.
    awaited: BTreeSet<Site>,
    sessions: BTreeMap<Session, Collective>,
    ended: BTreeMap<Session, End>,
    /// The sites that contribute to nothing any more, and their reasons.
    left: BTreeMap<Site, String>,
    actions: VecDeque<SchedulerAction>,
}

/// The sites as a seat knows them.
#[derive(Debug)]
struct View {
    lost: BTreeSet<Site>,
    /// Relative rates that were set, where they are not 1.
    capacities: BTreeMap<Site, f64>,
    rates: RateTable,
    /// Relative rates of the sites that are slow, as measured.
    slow: BTreeMap<Site, f64>,
    troubles: Troubles,
    costs: Costs,
    patience: Duration,
}

impl View {
    fn capacity(&self, site: Site) -> f64 {
        let set = self.capacities.get(&site).copied().unwrap_or(1.0);
        set * self.slow.get(&site).copied().unwrap_or(1.0)
    }

    /// Looks again at what was measured. Returns the sites that are far slower than they counted before.
    fn measure(&mut self, now: Duration) -> BTreeSet<Site> {
        const FAR: f64 = 0.6;
        self.rates.judge(now);
        let slow = self.rates.slow(now);
        if let Some(usual) = self.rates.usual() {
            self.costs.rate = usual;
        }
        let counted = |site: &Site| self.slow.get(site).copied().unwrap_or(1.0);
        let fallen = slow.iter().filter(|(site, rate)| **rate < FAR * counted(site));
        let fallen = fallen.map(|(site, _)| *site).collect();
        self.slow = slow;
        fallen
    }
}

impl Scheduler {
    /// Ends that are remembered for late callers.
    pub const ENDED_MAX: usize = 1_024;

    /// The first seat. It begins without members that are late by more than `patience`, and appends them when they
    /// come.
    pub fn new(site: Site, costs: Costs, patience: Duration) -> Self {
        Self {
            term: Term(site.0),
            groups: BTreeMap::new(),
            view: View {
                lost: BTreeSet::new(),
                capacities: BTreeMap::new(),
                rates: RateTable::default(),
                slow: BTreeMap::new(),
                troubles: Troubles::default(),
                costs,
                patience,
            },
            awaited: BTreeSet::new(),
            sessions: BTreeMap::new(),
            ended: BTreeMap::new(),
            left: BTreeMap::new(),
            actions: VecDeque::new(),
        }
    }

    /// A seat after another one. Every one of the `living` sites, this one too, has to tell its standing or be lost.
    #[must_use]
    pub fn take_over(mut self, living: impl IntoIterator<Item = Site>) -> Self {
        self.awaited = living.into_iter().collect();
        for &site in &self.awaited {
            let message = FromScheduler::NewTerm(self.term);
            self.actions.push_back(SchedulerAction::Send(site, message));
        }
        self
    }

    /// Introduces a group: the site of each member.
    pub fn add_group(&mut self, group: u64, sites: Vec<Site>) {
        self.groups.insert(group, sites);
    }

    /// Sets the rate at which a site receives and folds, relative to the others' 1; 0 for a site that does not fold.
    pub fn set_capacity(&mut self, site: Site, capacity: f64) {
        self.view.capacities.insert(site, capacity);
    }

    /// Tells which sites are on one host. A pair that does not reach each other is then taken for what it mostly
    /// shows: a pair of hosts that do not.
    pub fn set_hosts(&mut self, hosts: impl IntoIterator<Item = (Site, u64)>) {
        self.view.troubles.set_hosts(hosts);
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<SchedulerAction> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.sessions.values().filter_map(Collective::deadline).min()
    }

    /// The sessions that have not ended.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A message of a site.
    pub fn handle_message(&mut self, now: Duration, from: Site, message: ToScheduler) {
        // A lost site is fenced: what it held counts as given up.
        if self.view.lost.contains(&from) {
            return;
        }
        match message {
            ToScheduler::Announce {
                session,
                call,
                originals,
                are_enclosed,
            } => {
                if !self.view.slow.is_empty() {
                    self.view.measure(now);
                }
                if !self.sessions.contains_key(&session) {
                    self.view.troubles.forget_old(now);
                }
                self.announce(from, session, &call, &originals, are_enclosed);
                self.consider(now, session);
            }
            ToScheduler::Progress {
                session,
                generation,
                share,
                merged,
            } => {
                if let Some(collective) = self.collective(session, from) {
                    collective.note_progress(generation, share, merged);
                }
            }
            ToScheduler::Complete {
                session,
                term,
                generation,
                tokens,
                is_enclosed,
            } => {
                // A new seat does not know all contributions yet. The root tells again after its next row.
                let is_ours = term == self.term && self.awaited.is_empty();
                if let Some(collective) = self.sessions.get_mut(&session).filter(|_| is_ours) {
                    let end = collective.complete(from, generation, tokens, is_enclosed);
                    self.settle(session, end);
                }
            }
            ToScheduler::Rates(rates) => self.take_rates(now, from, rates),
            ToScheduler::Unreachable {
                session,
                plan,
                site: other,
            } => {
                if plan.term != self.term {
                    return;
                }
                let Some(collective) = self.sessions.get_mut(&session) else {
                    return;
                };
                if collective.is_current(plan) && !self.view.lost.contains(&other) {
                    let end = collective.avoid(&mut self.view, now, plan, from, other);
                    self.settle(session, end);
                }
            }
            ToScheduler::Failed { session, failure } => self.end(session, End::Failed(failure)),
            ToScheduler::GiveUp {
                session,
                member,
                reason,
            } => {
                let ranks = self.groups.get(&session.group).map_or(0, Vec::len);
                let missing = match self.sessions.get(&session) {
                    Some(collective) => collective.missing_ranks(),
                    None => (0..ranks as u32).map(Member).collect(),
                };
                let end = End::GivenUp {
                    member,
                    reason,
                    missing,
                };
                if !self.ended.contains_key(&session) {
                    self.end(session, end);
                }
            }
            ToScheduler::Leave { why } => {
                self.left.insert(from, why);
                let sessions: Vec<Session> = self.sessions.keys().copied().collect();
                sessions
                    .into_iter()
                    .for_each(|session| self.consider(now, session));
            }
            ToScheduler::Standing { term, sessions } if term == self.term => {
                if self.awaited.remove(&from) {
                    self.take_standing(now, from, sessions);
                }
            }
            ToScheduler::Standing { .. } => {}
        }
    }

    /// A site is lost and fenced. What its agent and its copies hold was announced before.
    pub fn handle_lost(&mut self, now: Duration, site: Site) {
        if !self.view.lost.insert(site) {
            return;
        }
        self.view.troubles.forget_site(site);
        let was_awaited = self.awaited.remove(&site);
        if was_awaited && self.awaited.is_empty() {
            self.open(now);
        }
        if !self.awaited.is_empty() {
            return;
        }
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        for session in sessions {
            if let Some(collective) = self.sessions.get_mut(&session) {
                let end = collective.lose(&self.view, now, site);
                self.settle(session, end);
            }
        }
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Duration) {
        let due = self
            .sessions
            .iter()
            .filter(|(_, collective)| collective.deadline().is_some_and(|deadline| deadline <= now));
        let due: Vec<Session> = due.map(|(&session, _)| session).collect();
        for session in due {
            if let Some(collective) = self.sessions.get_mut(&session) {
                collective.begin_without_late(&self.view);
                self.settle(session, None);
            }
        }
    }

    /// Sites that turn out to be slow get another place in the trees of what is left.
    fn take_rates(&mut self, now: Duration, from: Site, rates: Vec<(Site, RateBounds)>) {
        self.view.rates.note(now, from, rates);
        if !self.view.rates.has_news() {
            return;
        }
        let fallen = self.view.measure(now);
        if fallen.is_empty() || !self.awaited.is_empty() {
            return;
        }
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        for session in sessions {
            if let Some(collective) = self.sessions.get_mut(&session) {
                collective.go_around_slow(&self.view, &fallen);
                self.settle(session, None);
            }
        }
    }

    /// The session, if its root's site is `from`.
    fn collective(&mut self, session: Session, from: Site) -> Option<&mut Collective> {
        self.sessions
            .get_mut(&session)
            .filter(|collective| collective.root() == from)
    }

    fn announce(
        &mut self,
        from: Site,
        session: Session,
        call: &Call,
        originals: &[(Member, Token)],
        are_enclosed: bool,
    ) {
        if let Some(end) = self.ended.get(&session) {
            let (term, end) = (self.term, end.clone());
            let message = FromScheduler::Ended { session, term, end };
            self.actions.push_back(SchedulerAction::Send(from, message));
            return;
        }
        let Some(sites) = self.groups.get(&session.group) else {
            return;
        };
        let term = self.term;
        let collective = self
            .sessions
            .entry(session)
            .or_insert_with(|| Collective::new(session, term, call.clone(), sites.clone()));
        if let Some(end) = collective.announce(from, call, originals, are_enclosed) {
            self.end(session, end);
        }
    }

    /// Decides what there is to decide after an announcement.
    fn consider(&mut self, now: Duration, session: Session) {
        if let Some(collective) = self
            .sessions
            .get_mut(&session)
            .filter(|_| self.awaited.is_empty())
        {
            let end = collective.forsaken(&self.left);
            let end = end.or_else(|| collective.consider(&self.view, now));
            self.settle(session, end);
        }
    }

    fn take_standing(&mut self, now: Duration, from: Site, sessions: Vec<Standing>) {
        for standing in sessions {
            let session = standing.session;
            if let Some(end) = standing.end {
                // A verdict that anybody living has stands.
                self.end(session, end);
                continue;
            }
            self.announce(from, session, &standing.call, &standing.originals, false);
            if let Some(collective) = self.sessions.get_mut(&session) {
                collective.restore(&standing);
            }
        }
        if self.awaited.is_empty() {
            self.open(now);
        }
    }

    /// Everybody has answered: decide.
    fn open(&mut self, now: Duration) {
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        for session in sessions {
            if let Some(collective) = self.sessions.get_mut(&session) {
                let end = collective.forsaken(&self.left);
                let end = end.or_else(|| collective.resume(&self.view, now));
                self.settle(session, end);
            }
        }
    }

    /// Sends what a session has to say, and ends it if there is a verdict.
    fn settle(&mut self, session: Session, end: Option<End>) {
        let collective = self
            .sessions
            .get_mut(&session)
            .filter(|_| self.awaited.is_empty());
        let spread = || collective.and_then(|collective| collective.spread(&self.view, &self.left));
        if let Some(end) = end.or_else(spread) {
            self.end(session, end);
        } else if let Some(collective) = self.sessions.get_mut(&session) {
            for (site, row) in collective.take_rows() {
                let message = FromScheduler::Row(row);
                self.actions.push_back(SchedulerAction::Send(site, message));
            }
        }
    }

    fn end(&mut self, session: Session, end: End) {
        let collective = self.sessions.remove(&session);
        let end = self.ended.entry(session).or_insert(end).clone();
        while self.ended.len() > Self::ENDED_MAX {
            self.ended.pop_first();
        }
        let members = self.groups.get(&session.group).into_iter().flatten().copied();
        let mut sites: BTreeSet<Site> = members.collect();
        sites.extend(collective.iter().flat_map(Collective::sites));
        for site in sites.difference(&self.view.lost) {
            let message = FromScheduler::Ended {
                session,
                term: self.term,
                end: end.clone(),
            };
            self.actions.push_back(SchedulerAction::Send(*site, message));
        }
    }
}
