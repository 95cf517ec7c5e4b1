use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    canary::{Canary, is_put_back},
    ids::{Member, PlanId, Session, ShareId, Site, Term, Token},
    message::{FromScheduler, Standing, ToScheduler},
    planner::{Costs, Order},
    rates::RateBounds,
    recent::Recent,
};

mod ahead;
mod call;
mod collective;
mod copies;
mod detours;
mod end;
mod giving_way;
mod pace;
mod rows;
mod spreading;
mod unheard_ends;
mod view;

use ahead::Ahead;
pub use call::{Call, Contributions, OnLoss, OnRootLoss};
use collective::Collective;
pub use end::{End, Failure, GiveUp, Roster};
use unheard_ends::UnheardEnds;
use view::View;

/// Something that a driver has to do for a [`Scheduler`].
#[derive(Clone, Debug, PartialEq)]
pub enum SchedulerAction {
    /// Send to a site, which may be this very one.
    Send(Site, FromScheduler),
    /// Others have heard the end of this session: this site need not [keep](Scheduler::has_to_keep) its contribution.
    LetGo(Session),
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
    /// Messages that end sessions, which have to wait for the standing of all: somebody may know another end.
    postponed: BTreeMap<Session, (Site, ToScheduler)>,
    sessions: BTreeMap<Session, Collective>,
    ended: Recent<End>,
    ahead: Ahead,
    /// The groups whose sessions [give way](Call::gives_way_to), by those to which they do.
    giving_way: BTreeMap<u64, u64>,
    /// The sites that contribute to nothing any more, and their reasons.
    left: BTreeMap<Site, String>,
    unheard_ends: UnheardEnds,
    actions: VecDeque<SchedulerAction>,
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
            view: View::new(costs, patience),
            postponed: BTreeMap::new(),
            awaited: BTreeSet::new(),
            sessions: BTreeMap::new(),
            ended: Recent::new(Self::ENDED_MAX),
            ahead: Ahead::default(),
            giving_way: BTreeMap::new(),
            left: BTreeMap::new(),
            unheard_ends: UnheardEnds::default(),
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
        let sessions = self.sessions.values().filter_map(Collective::deadline);
        let ahead = self.ahead.is_due().then_some(self.view.now);
        sessions.chain(self.unheard_ends.deadline()).chain(ahead).min()
    }

    /// The sessions that have not ended.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Contributions that were left by several ranks, some of which may be known as lost: all are known before anything
    /// is decided.
    pub fn handle_left(&mut self, now: Duration, left: impl IntoIterator<Item = (Site, Standing)>) {
        self.view.now = now;
        let mut sessions = BTreeSet::new();
        let is_lost = |site: &Site| self.view.lost.contains(site);
        let left: Vec<_> = left.into_iter().filter(|(site, _)| !is_lost(site)).collect();
        for (site, standing) in left {
            let session = standing.session;
            self.look_again(now, session);
            self.announce(site, session, &standing.call, &standing.originals, false);
            sessions.insert(session);
        }
        for session in sessions {
            self.consider(now, session);
        }
    }

    /// Looks again at what is known of sites, as a session may begin.
    fn look_again(&mut self, now: Duration, session: Session) {
        if !self.view.slow.is_empty() {
            self.view.measure(now);
        }
        if !self.sessions.contains_key(&session) {
            self.view.troubles.forget_old(now);
        }
    }

    /// A message of a site.
    pub fn handle_message(&mut self, now: Duration, from: Site, message: ToScheduler) {
        self.view.now = now;
        // A lost site is fenced: what it held counts as given up.
        if self.view.lost.contains(&from) {
            return;
        }
        if let ToScheduler::GiveUp { session, .. } | ToScheduler::Failed { session, .. } = &message
            && !self.awaited.is_empty()
            && self.postponed.len() < Self::ENDED_MAX
        {
            self.postponed.entry(*session).or_insert((from, message));
            return;
        }
        match message {
            ToScheduler::Announce {
                session,
                call,
                originals,
                are_enclosed,
            } => {
                self.look_again(now, session);
                self.announce(from, session, &call, &originals, are_enclosed);
                self.consider(now, session);
            }
            ToScheduler::Progress {
                session,
                generation,
                merged,
            } => {
                if let Some(collective) = self.collective(session, from) {
                    collective.note_progress(generation, merged);
                }
            }
            ToScheduler::Complete {
                session,
                term,
                generation,
                tokens,
                is_enclosed,
                ..
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
            ToScheduler::Failed { session, failure } => {
                if !self.ended.contains(&session) {
                    self.end(session, End::Failed(failure));
                }
            }
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
                if !self.ended.contains(&session) {
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
        self.view.now = now;
        if !self.view.lost.insert(site) {
            return;
        }
        self.unheard_ends.handle_lost(site);
        self.let_go();
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
        self.view.now = now;
        self.let_go();
        let due = self
            .sessions
            .iter()
            .filter(|(_, collective)| collective.deadline().is_some_and(|deadline| deadline <= now));
        let due: Vec<Session> = due.map(|(&session, _)| session).collect();
        let count = self.sessions.len();
        for session in due {
            if let Some(collective) = self.sessions.get_mut(&session) {
                collective.handle_timeout(&self.view, now, count);
                self.settle(session, None);
            }
        }
        // The rows of sessions that are called for are on their way by now.
        for (session, call) in self.ahead.take_due() {
            self.plan_ahead(session, call);
        }
    }

    /// Plans a session that nobody has called for.
    fn plan_ahead(&mut self, session: Session, call: Call) {
        let Some(sites) = self.groups.get(&session.group) else {
            return;
        };
        let last = Session {
            call: u64::MAX,
            ..session
        };
        let is_called_for =
            self.sessions.range(session..=last).next().is_some() || self.ended.contains(&session);
        let is_here = |site: &Site| !self.view.lost.contains(site) && !self.left.contains_key(site);
        if is_called_for || !self.awaited.is_empty() || !sites.iter().all(is_here) {
            return;
        }
        let planned = self.ahead.take(session);
        let mut planned = planned.unwrap_or_else(|| Collective::new(session, self.term, call, sites.clone()));
        planned.plan_ahead(&self.view);
        for (site, row) in planned.take_rows() {
            let message = FromScheduler::Row(row);
            self.actions.push_back(SchedulerAction::Send(site, message));
        }
        self.ahead.keep(session, planned);
    }

    /// Takes the rates of links; sites that turn out to be slow get another place in the trees of what is left. Memory
    /// that two sites of a host share is faster than any link, and would make them all look slow.
    fn take_rates(&mut self, now: Duration, from: Site, mut rates: Vec<(Site, RateBounds)>) {
        let troubles = &self.view.troubles;
        let folds = |site: &Site| self.view.capacity(*site) > 0.0 && !self.view.lost.contains(site);
        let is_alone = troubles.on_host_of(from).filter(folds).count() <= 1;
        rates.retain(|(to, _)| match *to == from {
            true => is_alone,
            false => !troubles.are_beside(from, *to),
        });
        self.view.rates.note(now, from, rates);
        if !self.view.rates.has_news() {
            return;
        }
        let fallen = self.view.measure(now);
        if !fallen.is_empty() {
            self.ahead.plan_again();
        }
        if !self.awaited.is_empty() {
            return;
        }
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        let count = sessions.len();
        for session in sessions {
            if let Some(collective) = self.sessions.get_mut(&session) {
                collective.go_around_slow(&self.view, now, &fallen, count);
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
        let caller = originals.first().map_or(Member(0), |(member, _)| *member);
        let end = match self.ended.get(&session) {
            Some(end) => Some(end.clone()),
            // A living site may still tell a new seat of a result.
            None if self.awaited.is_empty() => self.give_way(session, call, caller),
            None => {
                self.note_way(session, call);
                None
            }
        };
        if let Some(end) = end {
            let term = self.term;
            let message = FromScheduler::Ended { session, term, end };
            self.actions.push_back(SchedulerAction::Send(from, message));
            return;
        }
        let Some(sites) = self.groups.get(&session.group) else {
            return;
        };
        let (term, view, ahead) = (self.term, &self.view, &mut self.ahead);
        let collective = self
            .sessions
            .entry(session)
            .or_insert_with(|| match ahead.take(session) {
                Some(mut planned) => {
                    planned.note_called(call, view);
                    planned
                }
                None => Collective::new(session, term, call.clone(), sites.clone()),
            });
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
            if matches!(end, None | Some(End::Done { .. })) && collective.is_called_for() {
                let (call, ranks) = (collective.call(), collective.ranks());
                self.ahead.note(session, call, ranks, collective.has_begun_anew());
            }
            self.settle(session, end);
        }
    }

    fn take_standing(&mut self, now: Duration, from: Site, sessions: Vec<Standing>) {
        for standing in sessions {
            let session = standing.session;
            if let Some(end) = standing.end {
                // A verdict that anybody living has stands.
                self.end(session, end);
                self.note_way(session, &standing.call);
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
        self.give_ways();
        for (from, message) in std::mem::take(&mut self.postponed).into_values() {
            self.handle_message(now, from, message);
        }
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
        let end = self.ended.insert(session, end).clone();
        let members = self.groups.get(&session.group).into_iter().flatten().copied();
        let members: BTreeSet<Site> = members.collect();
        let mut sites = members.clone();
        sites.extend(collective.iter().flat_map(Collective::to_be_told));
        let own = Site(self.term.0);
        let message = FromScheduler::Ended {
            session,
            term: self.term,
            end,
        };
        let is_own = |site: &&Site| **site == own;
        let living = sites.difference(&self.view.lost);
        let (own, others): (Vec<Site>, Vec<Site>) = living.partition(is_own);
        // The own site hears after some others, which is enough.
        let (first, rest) = others.split_at(others.len().min(UnheardEnds::TOLD_FIRST));
        let sends = first.iter().chain(&own).chain(rest);
        self.actions
            .extend(sends.map(|site| SchedulerAction::Send(*site, message.clone())));
        if !own.is_empty() {
            // What gives way is short, and its contributions stay in a table.
            let gives_way = collective.is_some_and(|collective| collective.call().gives_way_to.is_some());
            let must_keep = !gives_way && !is_put_back(Canary::LetGoFirst);
            let others = others
                .into_iter()
                .filter(|site| must_keep && members.contains(site));
            self.unheard_ends.insert(self.view.now, session, others.collect());
            self.let_go();
        }
    }
}
