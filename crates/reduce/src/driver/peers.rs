//! The other ranks: who lives, and what becomes of those that do not.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, HandshakeError, Identity, PeerDeath, SubmitError};
use ropewalk_names::Rank;
use ropewalk_reduce_core::{Costs, Site};

use super::{
    council::Council,
    lines::{self, Answered},
    outbox::may_be_mended,
    progress::ProgressThread,
    roster::Roster,
    seat::{Seat, costs},
    sites::Kind,
    table_calls::Tables,
};
use crate::outcome::ReductionError;

/// The state of the other ranks as this one knows it.
#[derive(Debug)]
pub(super) struct Peers {
    costs: Costs,
    /// Where each is reached; `None` for one that is gone.
    pub(super) addresses: Vec<Option<Address>>,
    /// The ranks that are gone, as their agents say.
    pub(super) gone: BTreeSet<Rank>,
    /// The rank with the scheduler: the lowest one that lives.
    pub(super) seat: Rank,
    /// Peers whose connection broke.
    suspects: BTreeMap<Rank, Suspicion>,
    /// Peers that have told the scheduler something, as they proved it.
    heard: BTreeMap<Rank, Identity>,
    /// Peers that count as lost when they are silent for long.
    watched: BTreeSet<Rank>,
    /// When it is looked next who has to be watched.
    watch_at: Option<Instant>,
}

/// A peer cannot be reached, and nobody says that it is gone.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    /// From then on the peer lives and cannot be reached.
    cut_at: Option<Instant>,
    /// From then on it counts as gone.
    gone_at: Instant,
}

/// The sign that something is wrong with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// A connection broke, which its agent may explain.
    Broken,
    /// It gave no sign of life for the detection time.
    Silent,
    /// Messages have not got to it, on whichever road.
    Unheard,
}

impl Peers {
    pub(super) fn new(roster: &Roster) -> Self {
        Self {
            costs: costs(roster.members()),
            addresses: roster.addresses(),
            gone: BTreeSet::new(),
            seat: roster.seat(),
            suspects: BTreeMap::new(),
            heard: BTreeMap::new(),
            watched: BTreeSet::new(),
            watch_at: None,
        }
    }

    pub(super) fn handle_heard(&mut self, from: Identity) {
        self.heard.insert(from.rank, from);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let suspects = self.suspects.values();
        let suspects = suspects.flat_map(|suspicion| suspicion.cut_at.into_iter().chain([suspicion.gone_at]));
        suspects.chain(self.watch_at).min()
    }
}

impl ProgressThread {
    /// A broken connection may have cost messages. An agent says soon whether the process is gone; if it does not,
    /// plans go around the pair, and later the peer counts as gone, so that nobody waits for ever. Without agents it is
    /// asked if it can be reached, and else suspected.
    pub(super) fn notice_lost_peers(&mut self) {
        while let Some(lost) = self.engine.poll_lost_peer() {
            self.leave_if_fenced(&lost.cause);
            let is_mended = may_be_mended(&lost.cause);
            if self.link.is_some() && is_mended {
                // All that it may have cost is sent again, and its agent tells if the peer is gone.
                continue;
            }
            let is_silent = matches!(lost.cause, PeerDeath::Silent | PeerDeath::ConnectTimedOut);
            let known = self
                .peers
                .addresses
                .iter()
                .position(|address| address.as_ref() == Some(&lost.address));
            if let Some(index) = known {
                let rank = Rank(index as u32);
                if self.link.is_none() && is_mended {
                    self.probe(rank);
                    continue;
                }
                if is_silent && self.link.is_some() {
                    self.take_another_road(rank);
                }
                self.suspect(rank, if is_silent { Sign::Silent } else { Sign::Broken });
            }
        }
        let now = Instant::now();
        let suspects = &mut self.peers.suspects;
        let cut = suspects
            .iter_mut()
            .filter_map(|(rank, suspicion)| suspicion.cut_at.take_if(|at| *at <= now).map(|_| *rank));
        let cut: Vec<Rank> = cut.collect();
        for rank in cut {
            self.worker.handle_unreachable(Site(rank.0));
            for site in self.worker.neighbours() {
                if matches!(self.sites.kind(site), Kind::Copy { keeper, .. } if keeper == rank) {
                    self.worker.handle_unreachable(site);
                }
            }
        }
        let due = self
            .peers
            .suspects
            .iter()
            .filter(|(_, suspicion)| suspicion.gone_at <= now);
        for rank in due.map(|(&rank, _)| rank).collect::<Vec<_>>() {
            self.peers.suspects.remove(&rank);
            self.count_as_gone(rank);
        }
    }

    /// A line that lost a message counts as broken. Without grants a chunk does not move: plans go around the pair, and
    /// bring grants of their own. Nothing replaces a message of the scheduler or to it: the receiver counts as gone.
    /// Returns true if there are actions to take then.
    pub(super) fn give_up_broken_lines(&mut self) -> bool {
        let broken = self.outbox.lines.take_broken();
        let is_any = !broken.is_empty();
        for (rank, kind) in broken {
            match kind {
                lines::Kind::Grants => self.worker.handle_unreachable(Site(rank.0)),
                lines::Kind::ToSeat | lines::Kind::ToSite if self.council.is_some() => {
                    self.suspect(rank, Sign::Silent);
                }
                lines::Kind::ToSeat | lines::Kind::ToSite => self.count_as_gone(rank),
            }
        }
        is_any
    }

    /// While a reduction takes long, those are watched that it needs.
    pub(super) fn watch_peers(&mut self) {
        let now = Instant::now();
        let awaited = self.council.as_ref().map(Council::awaited).unwrap_or_default();
        let short = self.shared.tables.as_ref();
        let short = short.map(Tables::awaited).unwrap_or_default();
        let for_step = self.awaited_for_step();
        let is_idle = self.running.is_empty()
            && short.is_empty()
            && for_step.is_empty()
            && awaited.is_empty()
            && self.seat.as_ref().is_none_or(|seat| seat.needed().is_empty());
        if is_idle {
            if self.link.is_some() {
                // Nobody waits for them.
                self.peers.suspects.clear();
            }
            self.peers.watch_at = None;
            return self.watch(BTreeSet::new());
        }
        if *self.peers.watch_at.get_or_insert(now + WATCH_INTERVAL) > now {
            return;
        }
        self.peers.watch_at = Some(now + WATCH_INTERVAL);
        let mut needed = match &self.seat {
            Some(seat) => seat.needed(),
            None => BTreeSet::from([self.peers.seat]),
        };
        let neighbours = self.worker.neighbours().into_iter();
        needed.extend(neighbours.filter_map(|site| match self.sites.kind(site) {
            Kind::Rank(rank) | Kind::Copy { keeper: rank, .. } => Some(rank),
            Kind::Left(_) => None,
        }));
        needed.extend(self.copies.keepers());
        needed.extend(self.outbox.lines.relays_in_use());
        needed.extend(awaited);
        needed.extend(for_step);
        if self.council.is_some() && !short.is_empty() {
            // A majority decides on who is missing: it has to be known who can be reached.
            needed.extend((0..self.shared.size).map(Rank));
        }
        needed.extend(short);
        needed.remove(&self.shared.rank);
        let council = &self.council;
        let is_doubted = |rank: &Rank| council.as_ref().is_some_and(|council| council.doubts(*rank));
        let (reached, others): (BTreeSet<Rank>, BTreeSet<Rank>) = needed.into_iter().partition(|rank| {
            !self.peers.suspects.contains_key(rank) && !self.roads.is_detour(*rank) && !is_doubted(rank)
        });
        for rank in others.difference(&self.peers.gone) {
            self.outbox.lines.ask(*rank);
        }
        self.watch(reached);
    }

    pub(super) fn watch(&mut self, needed: BTreeSet<Rank>) {
        let before = std::mem::replace(&mut self.peers.watched, needed.clone());
        for rank in before.difference(&needed) {
            if let Some(address) = &self.peers.addresses[rank.index()]
                && let Ok(peer) = self.engine.peer(address)
            {
                self.engine.unwatch(peer);
            }
        }
        for rank in needed {
            if let Some(address) = &self.peers.addresses[rank.index()] {
                match self.engine.watch(address) {
                    Ok(()) | Err(SubmitError::Busy { .. }) => {}
                    Err(_) => self.suspect(rank, Sign::Broken),
                }
            }
        }
    }

    /// A rank may be gone, stopped or cut off. Without agents a majority decides.
    pub(super) fn suspect(&mut self, rank: Rank, sign: Sign) {
        let elapsed = self.now();
        if let Some(council) = &mut self.council {
            return council.suspect(elapsed, rank);
        }
        let now = Instant::now();
        let (cut_at, gone_at) = match sign {
            Sign::Broken => (now + CUT_VERDICT_TIME, now + AGENT_VERDICT_TIME),
            Sign::Silent | Sign::Unheard => (now, now + SILENCE_MAX),
        };
        let known = self.peers.suspects.entry(rank);
        let is_known = matches!(known, Entry::Occupied(_));
        let known = known.or_insert(Suspicion {
            cut_at: None,
            gone_at,
        });
        known.gone_at = gone_at.min(known.gone_at);
        if sign != Sign::Unheard || !is_known {
            known.cut_at = Some(known.cut_at.map_or(cut_at, |at| at.min(cut_at)));
        }
    }

    /// Messages that were sent to a rank directly do not get there.
    fn take_another_road(&mut self, rank: Rank) {
        self.roads.fail(rank, None, &self.peers.addresses);
        self.outbox.lines.recall(rank, None);
        self.rates.forget(Site(rank.0));
    }

    /// Nothing that was sent to a rank counts on being answered.
    fn abandon_chunks(&mut self, rank: Rank) {
        for chunk in self.outbox.abandon(&mut self.engine, rank) {
            self.worker.handle_undelivered(Site(rank.0), &chunk);
        }
        self.rates.forget(Site(rank.0));
    }

    /// A chunk was answered by its receiver, or could not be brought to it for as long as connections are mended.
    pub(super) fn hear_chunk_answer(&mut self, rank: Rank, is_reached: bool) {
        match is_reached {
            true => drop(self.peers.suspects.remove(&rank)),
            false if self.peers.gone.contains(&rank) => {}
            false => self.suspect(rank, Sign::Silent),
        }
    }

    /// Messages were answered, or their road has not led to their receiver.
    pub(super) fn hear_answer(&mut self, answered: &Answered) {
        let Answered {
            rank,
            via,
            is_reached,
            ref ended,
        } = *answered;
        let now = self.now();
        if let Some(seat) = &mut self.seat {
            seat.hear_ends_told(now, rank, ended);
        }
        if is_reached {
            self.peers.suspects.remove(&rank);
        } else if !self.peers.gone.contains(&rank) {
            self.roads.fail(rank, via, &self.peers.addresses);
            self.suspect(rank, Sign::Unheard);
        }
    }

    /// Something has come from a rank directly.
    pub(super) fn hear_from(&mut self, rank: Rank) {
        if self.peers.suspects.remove(&rank).is_some() {
            self.roads.open(rank);
        }
    }

    /// A process that was stopped for long, or cut off, learns from its peers that they go on without it.
    fn leave_if_fenced(&mut self, cause: &PeerDeath) {
        let own = self.engine.identity();
        if let PeerDeath::Handshake(HandshakeError::Fenced { identity }) = cause
            && *identity == own
        {
            let Identity {
                rank, incarnation, ..
            } = own;
            self.give_up(&ReductionError::Fenced { rank, incarnation });
        }
    }

    /// No agent says so, but a rank was silent for too long for those who need its messages, or took too few.
    pub(super) fn count_as_gone(&mut self, rank: Rank) {
        if self.seat.is_some() {
            // It may only have been away: from now on it counts as gone.
            if let Some(&identity) = self.peers.heard.get(&rank) {
                self.engine.fence(identity);
            }
            self.handle_gone(rank);
        } else if rank == self.peers.seat {
            self.give_up(&ReductionError::SchedulerLost { rank });
        }
    }

    /// A rank is gone. If it had the scheduler, the lowest rank that is left takes over.
    pub(super) fn handle_gone(&mut self, rank: Rank) {
        if self.peers.gone.contains(&rank) {
            return;
        }
        self.lose_in_table(rank);
        self.step_without(rank);
        self.peers.gone.insert(rank);
        self.peers.addresses[rank.index()] = None;
        self.peers.suspects.remove(&rank);
        self.outbox.lines.forget(rank);
        self.carrier.handle_gone(rank);
        self.roads.open(rank);
        self.abandon_chunks(rank);
        let left = self.sites.of_left(rank);
        self.copies
            .handle_gone(rank, |session| self.inherited.contains(session, left));
        let now = self.now();
        if let Some(seat) = &mut self.seat {
            return seat.lose(now, rank);
        }
        let size = self.shared.size;
        let mut living = (0..size).map(Rank).filter(|rank| !self.peers.gone.contains(rank));
        self.peers.seat = living.next().unwrap_or(self.shared.rank);
        if self.peers.seat == self.shared.rank {
            let (gone, inherited) = (&self.peers.gone, self.inherited.left(self.sites));
            self.seat = Some(Seat::take_over(
                self.shared.rank,
                self.roads.hosts(),
                self.peers.costs,
                self.shared.roster.epoch,
                gone,
                inherited,
                now,
            ));
        }
    }
}

/// So long after a connection broke plans go around it, if the agent does not say before that the peer is gone.
const CUT_VERDICT_TIME: Duration = Duration::from_millis(500);
/// So long after a connection broke the agent is waited for to say that the peer is gone. Its word may have to go
/// through the launcher, over links that are mended.
const AGENT_VERDICT_TIME: Duration = Duration::from_secs(10);
/// How long a process may be silent on all roads that its agent does not report as gone. It may be stopped and go on,
/// and then nothing is lost; but nobody waits longer for one that hangs.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// So long may a reduction take before the ranks that it needs are watched, and so often it is looked who these are.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
