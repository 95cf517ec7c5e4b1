//! Copies of contributions on other hosts, for the loss of a whole host.
//!
//! The owner of a contribution asks ranks of other hosts to keep a copy, which they pull piece by piece, as far as it
//! may be needed; then the scheduler is told of one more site that holds the contribution. If a keeper is lost, its
//! owner asks another rank; if the owner is lost with its host, the keeper that is its heir does so.

mod course;
mod pull;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Address, RegionHandle};
use ropewalk_names::{Epoch, Rank};
use ropewalk_reduce_core::Session;
use ropewalk_rpc::{Call, Engine, Fault, Responder};

pub(super) use pull::WayToSeat;

use pull::Pull;

use super::{
    bootstrap::HostMark,
    outbox::is_busy,
    procedures::{AskedCopy, KeepCopy},
};
use crate::message::{Contribution, KeptCopy};

/// The copies of this rank's contributions elsewhere, and those of others here.
pub(super) struct Copies {
    /// The hosts of all ranks.
    hosts: Vec<HostMark>,
    epoch: Epoch,
    owned: BTreeMap<(Session, Rank), Owned>,
    kept: BTreeMap<(Session, Rank), Kept>,
    waiting: VecDeque<Pull>,
    pull: Option<Pull>,
    /// The copies of which the scheduler does not know for certain. Until then their owners have none.
    untold: Vec<(Session, Rank, Responder<()>)>,
}

/// A wish for copies.
pub(super) struct WishedCopies {
    pub(super) contribution: Contribution,
    pub(super) bytes: Bytes,
    /// The number of other hosts.
    pub(super) count: u32,
    /// The contribution counts only when they are stored.
    pub(super) is_acknowledged: bool,
}

/// The copies of a contribution are stored, or as many as can be had.
pub(super) struct Settled {
    pub(super) session: Session,
    pub(super) owner: Rank,
    /// The time from the call on, if all are stored.
    pub(super) exposure: Option<Duration>,
}

/// A contribution for whose copies this rank cares.
struct Owned {
    contribution: Contribution,
    /// Where it is read from `begin` on.
    handle: RegionHandle,
    begin: u64,
    wanted: usize,
    begun: Instant,
    asked: Vec<(Rank, Call<()>)>,
    keepers: BTreeSet<Rank>,
    /// The ranks that could not keep it.
    failed: BTreeSet<Rank>,
    is_settled: bool,
    /// The call waits for the copies.
    is_awaited: bool,
}

/// A copy that is here.
struct Kept {
    copy: KeptCopy,
    is_heir: bool,
}

impl Copies {
    /// Copies that wait to be pulled at most.
    const WAITING_MAX: usize = 1_024;

    /// `hosts` are those of all ranks.
    pub(super) fn new(hosts: Vec<HostMark>, epoch: Epoch) -> Self {
        Self {
            hosts,
            epoch,
            owned: BTreeMap::new(),
            kept: BTreeMap::new(),
            waiting: VecDeque::new(),
            pull: None,
            untold: Vec::new(),
        }
    }

    /// Begins to have copies made of a contribution of this rank.
    pub(super) fn begin(&mut self, engine: &mut Engine, own: Rank, wish: WishedCopies) {
        let handle = engine.expose(wish.bytes);
        let session = wish.contribution.session;
        let mut owned = Owned::new(wish.contribution, handle, 0, wish.count as usize);
        owned.is_awaited = wish.is_acknowledged;
        self.owned.insert((session, own), owned);
    }

    /// Another rank wants a copy to be kept here. One whose owner is lost goes first.
    pub(super) fn keep(&mut self, from: Rank, asked: AskedCopy, responder: Responder<()>) {
        if asked.owner.index() >= self.hosts.len() || asked.begin > asked.contribution.length {
            return responder.answer(Err(Fault::new(
                "a copy is of a rank of this job, and begins before its end",
            )));
        }
        if self.waiting.len() >= Self::WAITING_MAX {
            return responder.answer(Err(Fault::new("too many copies wait to be made here")));
        }
        let is_only_one = asked.owner != from;
        let is_urgent = is_only_one || asked.is_awaited;
        let pull = Pull::new(asked, responder, is_urgent);
        match is_only_one {
            true => self.waiting.push_front(pull),
            false => self.waiting.push_back(pull),
        }
    }

    /// The copies that are here.
    pub(super) fn kept(&self) -> Vec<KeptCopy> {
        self.kept.values().map(|kept| kept.copy.clone()).collect()
    }

    /// The sessions for which a rank has fewer copies than it wants, and no prospect of more.
    pub(super) fn unprotected(&self, own: Rank) -> Vec<Session> {
        let of_own = self.owned.iter().filter(|((_, owner), _)| *owner == own);
        let lacks = of_own.filter(|(_, owned)| owned.is_settled && owned.keepers.len() < owned.wanted);
        lacks.map(|((session, _), _)| *session).collect()
    }

    /// The ranks that keep copies for this one.
    pub(super) fn keepers(&self) -> impl Iterator<Item = Rank> {
        self.owned.values().flat_map(|owned| {
            let asked = owned.asked.iter().map(|(rank, _)| *rank);
            owned.keepers.iter().copied().chain(asked)
        })
    }

    /// Asks for copies, and takes the answers. Returns what is settled now.
    pub(super) fn ask(
        &mut self,
        engine: &mut Engine,
        own: Rank,
        addresses: &[Option<Address>],
    ) -> Vec<Settled> {
        let mut settled = Vec::new();
        for ((session, owner), owned) in &mut self.owned {
            owned.take_answers();
            let mut has_to_wait = false;
            while owned.keepers.len() + owned.asked.len() < owned.wanted
                && let Some((rank, address)) = owned.next_keeper(&self.hosts, [own, *owner], addresses)
            {
                let asked = AskedCopy {
                    owner: *owner,
                    contribution: owned.contribution.clone(),
                    handle: owned.handle.clone(),
                    begin: owned.begin,
                    is_awaited: owned.is_awaited,
                    is_heir: owned.keepers.is_empty() && owned.asked.is_empty(),
                };
                match engine.call::<KeepCopy>(address, &(self.epoch, Box::new(asked)), COPY_TIMEOUT) {
                    Ok(call) => owned.asked.push((rank, call)),
                    Err(error) if is_busy(&error) => {
                        has_to_wait = true;
                        break;
                    }
                    Err(_) => drop(owned.failed.insert(rank)),
                }
            }
            if owned.asked.is_empty() && !has_to_wait && !owned.is_settled {
                owned.is_settled = true;
                let is_whole = owned.keepers.len() >= owned.wanted;
                settled.push(Settled {
                    session: *session,
                    owner: *owner,
                    exposure: is_whole.then(|| owned.begun.elapsed()),
                });
            }
        }
        settled
    }

    /// Goes on with the copies that are made here, one piece after the other: what is reduced goes first. Returns the
    /// copies that are whole now.
    pub(super) fn pull(&mut self, engine: &mut Engine, seat: WayToSeat<'_>) -> Vec<KeptCopy> {
        let mut whole = Vec::new();
        loop {
            if self.pull.is_none() {
                let Some(pull) = self.waiting.pop_front() else {
                    return whole;
                };
                let kept: u64 = self.kept.values().map(|kept| kept.copy.contribution.length).sum();
                if kept.saturating_add(pull.asked().contribution.length) > copies_bytes_max() {
                    pull.fail(Fault::new("no memory for another copy on this host"));
                    continue;
                }
                self.pull = Some(pull);
            }
            let Some(pull) = &mut self.pull else { return whole };
            match pull.go_on(engine, self.epoch, seat) {
                Ok(false) => return whole,
                Ok(true) => {}
                Err(error) => {
                    if let Some(pull) = self.pull.take() {
                        pull.fail(error);
                    }
                    continue;
                }
            }
            if let Some(pull) = self.pull.take() {
                let (copy, is_heir, responder) = pull.finish(engine);
                let key = (copy.contribution.session, copy.owner);
                whole.push(copy.clone());
                self.kept.insert(key, Kept { copy, is_heir });
                self.untold.push((key.0, key.1, responder));
            }
        }
    }

    /// When to go on with a copy that rests.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.pull.as_ref().and_then(Pull::next_deadline)
    }

    /// Answers the owners of the copies of which the scheduler has heard.
    pub(super) fn confirm(&mut self, is_untold: impl Fn(Session, Rank) -> bool) {
        let told = self
            .untold
            .extract_if(.., |(session, owner, _)| !is_untold(*session, *owner));
        told.for_each(|(_, _, responder)| responder.answer(Ok(())));
    }

    /// A rank is gone. `has_left` says if a contribution of it can be read elsewhere on its host.
    pub(super) fn handle_gone(&mut self, gone: Rank, has_left: impl Fn(Session) -> bool) {
        for owned in self.owned.values_mut() {
            owned.keepers.remove(&gone);
            owned.asked.retain(|(rank, _)| *rank != gone);
        }
        // Its owner does not answer any more; others wait for their copies.
        if let Some(pull) = self.pull.take_if(|pull| pull.asked().owner == gone) {
            pull.fail(Fault::new("the owner of the copy is gone"));
        }
        let orphans = self
            .kept
            .iter()
            .filter(|((session, owner), kept)| *owner == gone && kept.is_heir && !has_left(*session));
        for (key, kept) in orphans {
            let KeptCopy {
                contribution,
                handle,
                begin,
                ..
            } = kept.copy.clone();
            let owned = Owned::new(contribution, handle, begin, 1);
            self.owned.entry(*key).or_insert(owned);
        }
    }

    /// A reduction is over.
    pub(super) fn forget(&mut self, engine: &mut Engine, session: Session) {
        self.kept.retain(|(of, _), kept| {
            let stays = *of != session;
            if !stays {
                engine.withdraw(&kept.copy.handle);
            }
            stays
        });
        self.owned.retain(|(of, _), owned| {
            let stays = *of != session;
            if !stays {
                engine.withdraw(&owned.handle);
            }
            stays
        });
        self.waiting
            .retain(|pull| pull.asked().contribution.session != session);
        self.pull
            .take_if(|pull| pull.asked().contribution.session == session);
    }

    /// All reductions are over.
    pub(super) fn forget_all(&mut self, engine: &mut Engine) {
        let sessions = self
            .kept
            .keys()
            .chain(self.owned.keys())
            .map(|(session, _)| *session);
        for session in sessions.collect::<BTreeSet<_>>() {
            self.forget(engine, session);
        }
    }

    /// This rank's own contribution is not needed any more, as far as it knows.
    pub(super) fn disown(&mut self, engine: &mut Engine, own: Rank, session: Session) {
        if let Some(owned) = self.owned.remove(&(session, own)) {
            engine.withdraw(&owned.handle);
        }
    }
}

impl Owned {
    fn new(contribution: Contribution, handle: RegionHandle, begin: u64, wanted: usize) -> Self {
        Self {
            contribution,
            handle,
            begin,
            wanted,
            begun: Instant::now(),
            asked: Vec::new(),
            keepers: BTreeSet::new(),
            failed: BTreeSet::new(),
            is_settled: false,
            is_awaited: false,
        }
    }

    fn take_answers(&mut self) {
        let (keepers, failed) = (&mut self.keepers, &mut self.failed);
        self.asked.retain_mut(|(rank, call)| {
            let answer = call.try_take();
            match &answer {
                None => {}
                Some(Ok(())) => drop(keepers.insert(*rank)),
                Some(Err(_)) => drop(failed.insert(*rank)),
            }
            answer.is_none()
        });
    }

    /// A rank of a host that has no copy yet, and neither of the ranks `besides`: the next host's, and there the one
    /// that has the place which the first of those has on its own host.
    fn next_keeper<'a>(
        &self,
        hosts: &[HostMark],
        besides: [Rank; 2],
        addresses: &'a [Option<Address>],
    ) -> Option<(Rank, &'a Address)> {
        let host_of = |rank: Rank| hosts[rank.index()];
        let asked = self.asked.iter().map(|(rank, _)| *rank);
        let taken = asked.chain(self.keepers.iter().copied()).chain(besides);
        let taken: BTreeSet<HostMark> = taken.map(host_of).collect();
        let own = besides[0];
        let place = (0..own.0)
            .filter(|rank| host_of(Rank(*rank)) == host_of(own))
            .count();
        let after = (own.0..hosts.len() as u32).chain(0..own.0).map(Rank);
        let free: Vec<Rank> = after
            .filter(|rank| !taken.contains(&host_of(*rank)) && !self.failed.contains(rank))
            .filter(|rank| addresses[rank.index()].is_some())
            .collect();
        let next = host_of(*free.first()?);
        let there: Vec<Rank> = free.into_iter().filter(|rank| host_of(*rank) == next).collect();
        let rank = there[place % there.len()];
        Some((rank, addresses[rank.index()].as_ref()?))
    }
}

/// A quarter of the host's memory, as the kernel says it is.
fn copies_bytes_max() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit) / 4
}

/// A copy may take so long; a keeper that is gone is noticed earlier.
const COPY_TIMEOUT: Duration = Duration::from_secs(600);
