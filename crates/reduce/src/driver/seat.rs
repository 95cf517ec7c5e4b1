//! The scheduler on the rank that has its seat: the lowest one that lives.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::{Epoch, Rank, SchedulerLoad};
use ropewalk_reduce_core::{
    Costs, End, FromScheduler, Input, Member, Recent, Row, Scheduler, SchedulerAction, Session, Site,
    Standing, Term, ToScheduler,
};

use super::{
    bootstrap::HostMark,
    digests::Digests,
    enclosed::Enclosed,
    roster::Card,
    sites::{Kind, Sites},
};
use crate::{
    ids::{GroupId, ReductionId, ReductionNumber},
    message::{Circumstances, Contribution, Introduction, KeptCopy, ToSeat, ToSite},
    signature::Signature,
};

/// The core's scheduler, and what is beside it for the users' eyes.
pub(super) struct Seat {
    scheduler: Scheduler,
    /// Ranks of the job.
    size: u32,
    /// Their hosts.
    hosts: Vec<HostMark>,
    epoch: Epoch,
    sites: Sites,
    /// The copies of contributions to sessions that have not ended, by their sites.
    copies: BTreeMap<(Session, Site), (Rank, KeptCopy)>,
    /// The ranks whose contributions have too few copies.
    unprotected: BTreeMap<Session, BTreeSet<Rank>>,
    groups: BTreeMap<u64, Vec<Rank>>,
    /// The calls of the members, of each session that has not ended.
    calls: BTreeMap<Session, BTreeMap<Rank, Signature>>,
    lost: BTreeSet<Rank>,
    /// The number of the newest plan of each session that has not ended.
    plans: BTreeMap<Session, u32>,
    /// The messages of other ranks, and to them.
    load: SchedulerLoad,
    /// The load before the first call of each session that has not ended.
    load_before: BTreeMap<Session, SchedulerLoad>,
    digests: Digests,
    enclosed: Enclosed,
    /// The circumstances of ends, for late callers.
    ended: Recent<Circumstances>,
}

/// Something that the rank of a seat does for it.
pub(super) enum SeatAction {
    Send(Site, Box<ToSite>),
    /// The rank's contribution to a session that has ended need not be kept any more.
    LetGo(Session),
}

impl Seat {
    /// The seat of a rank in a job of ranks on these hosts.
    pub(super) fn new(rank: Rank, hosts: &[HostMark], costs: Costs, epoch: Epoch) -> Self {
        let size = hosts.len() as u32;
        let sites = Sites::new(size);
        let mut scheduler = Scheduler::new(Site(rank.0), costs, PATIENCE);
        for (rank, host) in (0..size).map(Rank).zip(hosts) {
            let here = [Site(rank.0), sites.of_left(rank)];
            scheduler.set_hosts(here.map(|site| (site, host.number())));
            scheduler.set_capacity(sites.of_left(rank), 0.0);
        }
        Self {
            scheduler,
            size,
            hosts: hosts.to_vec(),
            epoch,
            sites,
            copies: BTreeMap::new(),
            unprotected: BTreeMap::new(),
            groups: BTreeMap::new(),
            calls: BTreeMap::new(),
            lost: BTreeSet::new(),
            plans: BTreeMap::new(),
            load: SchedulerLoad::default(),
            load_before: BTreeMap::new(),
            digests: Digests::default(),
            enclosed: Enclosed::default(),
            ended: Recent::new(Scheduler::ENDED_MAX),
        }
    }

    /// A seat after the one of a rank that is gone. It asks all others, and answers for what they have left.
    pub(super) fn take_over<'a>(
        rank: Rank,
        hosts: &[HostMark],
        costs: Costs,
        epoch: Epoch,
        gone: &BTreeSet<Rank>,
        inherited: impl Iterator<Item = (Rank, &'a Contribution)>,
        now: Duration,
    ) -> Self {
        let mut seat = Self::new(rank, hosts, costs, epoch);
        let size = seat.size;
        for &rank in gone {
            seat.lose(now, rank);
        }
        let mut left: BTreeMap<Rank, Vec<&Contribution>> = BTreeMap::new();
        for (rank, contribution) in inherited {
            left.entry(rank).or_default().push(contribution);
        }
        let ranks = (0..size).map(Rank).filter(|rank| !gone.contains(rank));
        let sites = ranks.map(|rank| Site(rank.0));
        let sites: Vec<Site> = sites
            .chain(left.keys().map(|rank| seat.sites.of_left(*rank)))
            .collect();
        seat.scheduler = seat.scheduler.take_over(sites);
        for (from, contributions) in left {
            let site = seat.sites.of_left(from);
            seat.scheduler.set_capacity(site, 0.0);
            let mut sessions = Vec::new();
            for contribution in contributions {
                sessions.extend(seat.standing(from, contribution));
            }
            let term = Term(rank.0);
            seat.scheduler
                .handle_message(now, site, ToScheduler::Standing { term, sessions });
        }
        seat
    }

    /// The messages of other ranks, and to them.
    pub(super) fn load(&self) -> SchedulerLoad {
        self.load
    }

    /// A message of another rank, which had so many bytes, was handled.
    pub(super) fn note_received(&mut self, bytes: u64) {
        self.load.received += 1;
        self.load.received_bytes += bytes;
    }

    /// A message of so many bytes goes to another rank.
    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.load.sent += 1;
        self.load.sent_bytes += bytes;
    }

    /// A message of a rank.
    pub(super) fn handle(&mut self, now: Duration, from: Rank, mail: ToSeat) {
        match mail {
            ToSeat::Worker {
                introductions,
                mut message,
                enclosed,
            } => {
                for introduction in introductions {
                    self.introduce(from, introduction);
                }
                self.keep(&mut message, enclosed);
                self.scheduler.handle_message(now, Site(from.0), message);
            }
            ToSeat::Copy(copy) if copy.owner.0 < self.size && !self.lost.contains(&from) => {
                let site = self.sites.of_copy(from, copy.owner);
                let session = copy.contribution.session;
                let host = self.hosts[from.index()].number();
                self.scheduler.set_hosts([(site, host)]);
                if !self.ended.contains(&session) {
                    self.copies.insert((session, site), (from, copy.clone()));
                }
                self.announce_for(now, site, copy.owner, &copy.contribution);
                if copy.begin > 0 {
                    self.scheduler.note_part(session, site);
                }
            }
            ToSeat::Copy(_) => {}
            ToSeat::Unprotected(session) => {
                if !self.ended.contains(&session) {
                    self.unprotected.entry(session).or_default().insert(from);
                }
                while self.unprotected.len() > Scheduler::ENDED_MAX {
                    self.unprotected.pop_first();
                }
            }
            ToSeat::Digests { session, digests } => {
                if self.ended.contains(&session) {
                    return;
                }
                for (member, digest) in digests {
                    if let Some(failure) = self.digests.insert(session, member, from, digest) {
                        let failed = ToScheduler::Failed { session, failure };
                        self.scheduler.handle_message(now, Site(from.0), failed);
                    }
                }
            }
        }
    }

    /// Keeps what came with a message. A new seat does not know the group of a session that has ended.
    fn keep(&mut self, message: &mut ToScheduler, mut enclosed: Vec<(Session, Bytes)>) {
        let is_of_ends = matches!(message, ToScheduler::Standing { .. });
        enclosed.retain(|(session, _)| {
            !self.ended.contains(session) && (is_of_ends || self.groups.contains_key(&session.group))
        });
        self.enclosed.keep(message, enclosed);
    }

    /// Ranks that are gone have left these contributions: to their agents, or in the table of calls.
    pub(super) fn inherit<'a>(
        &mut self,
        now: Duration,
        contributions: impl IntoIterator<Item = (Rank, &'a Contribution)>,
    ) {
        let mut left = Vec::new();
        for (rank, contribution) in contributions {
            let site = self.sites.of_left(rank);
            self.scheduler.set_capacity(site, 0.0);
            left.extend(self.standing(rank, contribution).map(|standing| (site, standing)));
        }
        self.scheduler.handle_left(now, left);
    }

    /// A site where nobody is has a contribution of this rank.
    fn announce_for(&mut self, now: Duration, site: Site, owner: Rank, contribution: &Contribution) {
        self.scheduler.set_capacity(site, 0.0);
        if let Some(standing) = self.standing(owner, contribution) {
            self.scheduler.handle_left(now, [(site, standing)]);
        }
    }

    /// A rank is gone, and its agent has told all that it left.
    pub(super) fn lose(&mut self, now: Duration, rank: Rank) {
        if self.lost.insert(rank) {
            let mut sites = BTreeSet::new();
            self.copies.retain(|(_, site), (keeper, _)| {
                let stays = *keeper != rank;
                if !stays {
                    sites.insert(*site);
                }
                stays
            });
            for site in sites.into_iter().chain([Site(rank.0)]) {
                self.scheduler.handle_lost(now, site);
            }
        }
    }

    /// Bytes at the beginning of a contribution that nobody needs any more; nothing before the first plan.
    pub(super) fn settled_bytes(&self, session: Session, member: Member) -> Option<u64> {
        self.scheduler.settled_bytes(session, member)
    }

    /// A rank has answered that it has heard the ends of these sessions.
    pub(super) fn hear_ends_told(&mut self, now: Duration, rank: Rank, ended: &[Session]) {
        for session in ended {
            self.scheduler.handle_end_heard(now, Site(rank.0), *session);
        }
    }

    /// Says if this rank has to keep what it contributed to a session that has ended.
    pub(super) fn has_to_keep(&self, session: Session) -> bool {
        self.scheduler.has_to_keep(session)
    }

    /// The next thing to do.
    pub(super) fn poll(&mut self) -> Option<SeatAction> {
        let (site, message) = match self.scheduler.poll_action()? {
            SchedulerAction::Send(site, message) => (site, message),
            SchedulerAction::LetGo(session) => return Some(SeatAction::LetGo(session)),
        };
        let circumstances = match &message {
            FromScheduler::Ended { session, end, .. } => self.circumstances(*session, end),
            FromScheduler::Row(row) => {
                self.plans.insert(row.session, row.plan.number);
                Circumstances::default()
            }
            FromScheduler::NewTerm(_) => Circumstances::default(),
        };
        let copies = match &message {
            FromScheduler::Row(row) => self.copies_in(row),
            _ => Vec::new(),
        };
        let given = match &message {
            FromScheduler::Row(row) => self.enclosed.of(row.session, &row.given),
            _ => Vec::new(),
        };
        let message = ToSite {
            message,
            circumstances,
            copies,
            given,
        };
        Some(SeatAction::Send(site, Box::new(message)))
    }

    /// The copies that a row names as children.
    fn copies_in(&self, row: &Row) -> Vec<(Rank, KeptCopy)> {
        let inputs = row.nodes.iter().flat_map(|node| &node.inputs);
        let children = inputs.filter_map(|input| match input {
            Input::Child(site, _) if matches!(self.sites.kind(*site), Kind::Copy { .. }) => Some(*site),
            _ => None,
        });
        let children: BTreeSet<Site> = children.collect();
        let copies = children
            .into_iter()
            .filter_map(|site| self.copies.get(&(row.session, site)));
        copies.cloned().collect()
    }

    /// The next time at which to call [`handle_timeout`](Self::handle_timeout).
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.scheduler.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        self.scheduler.handle_timeout(now);
    }

    /// The members of the sessions that have not ended.
    pub(super) fn needed(&self) -> BTreeSet<Rank> {
        let groups = self
            .calls
            .keys()
            .filter_map(|session| self.groups.get(&session.group));
        groups.flatten().copied().collect()
    }

    fn introduce(&mut self, from: Rank, introduction: Introduction) {
        let Introduction {
            session,
            members,
            signature,
        } = introduction;
        if !self.groups.contains_key(&session.group) {
            let members = members.unwrap_or_else(|| ProcessGroup::world(self.size));
            let group = GroupId::of(&members, self.epoch);
            let numbers = [
                ReductionNumber::Call(0),
                ReductionNumber::Named(0),
                ReductionNumber::AmongHosts(0),
            ];
            let is_named_after_its_members = numbers
                .into_iter()
                .any(|number| ReductionId { group, number }.session().group == session.group);
            if !is_named_after_its_members || members.ranks().iter().any(|rank| rank.0 >= self.size) {
                return;
            }
            let sites = members.ranks().iter().map(|rank| Site(rank.0));
            self.scheduler.add_group(session.group, sites.collect());
            self.groups.insert(session.group, members.ranks().to_vec());
        }
        if let Some(signature) = signature
            && !self.ended.contains(&session)
        {
            self.load_before.entry(session).or_insert(self.load);
            let calls = self.calls.entry(session).or_default();
            calls.entry(from).or_insert(signature);
        }
    }

    /// The standing of a contribution that a rank has left; also introduces its session.
    fn standing(&mut self, rank: Rank, contribution: &Contribution) -> Option<Standing> {
        let session = contribution.session;
        let introduction = Introduction {
            session,
            members: contribution.members.clone(),
            signature: Some(contribution.signature.clone()),
        };
        self.introduce(rank, introduction);
        let members = match &contribution.members {
            Some(members) => members.clone(),
            None => ProcessGroup::world(self.size),
        };
        Some(Standing {
            session,
            call: contribution.signature.call(&members)?,
            originals: vec![(contribution.member, contribution.token)],
            shares: Vec::new(),
            chunking: None,
            roster: None,
            end: None,
        })
    }

    fn circumstances(&mut self, session: Session, end: &End) -> Circumstances {
        let result = self.enclosed.forget(session);
        if let Some(known) = self.ended.get(&session) {
            return known.clone();
        }
        let members = self.groups.get(&session.group).map_or(&[][..], Vec::as_slice);
        let lost = members.iter().filter(|rank| self.lost.contains(rank)).copied();
        let mut lost: Vec<Rank> = lost.collect();
        lost.sort();
        let calls = self.calls.remove(&session).unwrap_or_default();
        let odd = match end {
            End::Mismatch(odd) => members.get(odd.0 as usize).and_then(|rank| calls.get(rank)),
            _ => None,
        };
        let calls = odd.map(|odd| {
            let other = calls.values().find(|other| *other != odd).unwrap_or(odd);
            (other.to_string(), odd.to_string())
        });
        let plans = self.plans.remove(&session).unwrap_or_default();
        let before = self.load_before.remove(&session).unwrap_or(self.load);
        self.copies.retain(|(known, _), _| *known != session);
        self.digests.forget(session);
        let circumstances = Circumstances {
            lost,
            unprotected: self.unprotected.remove(&session).into_iter().flatten().collect(),
            plans,
            load: self.load - before,
            calls,
            result: result.filter(|_| matches!(end, End::Done { .. })),
        };
        self.ended.insert(session, circumstances).clone()
    }
}

/// Links and hosts as they are taken to be, for ranks that are reached there.
pub(super) fn costs(members: &[Card]) -> Costs {
    let host = |card: &Card| {
        let address = &card.address;
        let host = address
            .location()
            .rsplit_once(':')
            .map(|(host, _)| host.to_owned());
        (address.provider().to_owned(), host)
    };
    let hosts: BTreeSet<_> = members.iter().map(host).collect();
    match hosts.len() {
        1 => Costs {
            latency: 20e-6,
            per_chunk: 30e-6,
            rate: 4e9,
        },
        // A site between two others takes each chunk by system calls, and sends it on by further ones. With half of
        // this, four hosts that share two processors took a quarter longer for 256 KiB and 1 MiB.
        _ => Costs {
            latency: 100e-6,
            per_chunk: 60e-6,
            rate: 125e6,
        },
    }
}

/// A reduction begins without members that are late by more than this.
const PATIENCE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
