//! Who of the other ranks lives, and what becomes of those that do not.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ropewalk_fabric::{HandshakeError, Identity, PeerDeath, SubmitError};
use ropewalk_names::Rank;

use super::progress::{ProgressThread, SCHEDULER};
use crate::outcome::ReductionError;

/// The state of the other ranks as this one knows it.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// Peers whose connection broke, and when they count as gone unless the agent speaks before.
    suspects: BTreeMap<Rank, Instant>,
    /// Who has told the scheduler something, as they proved it.
    heard: BTreeMap<Rank, Identity>,
    /// Peers that count as lost when they are silent for long.
    watched: BTreeSet<Rank>,
    /// When it is looked next who has to be watched.
    watch_at: Option<Instant>,
    /// When the scheduler is told again that this rank has left.
    leave_at: Option<Instant>,
}

impl Peers {
    pub(super) fn handle_heard(&mut self, from: Identity) {
        self.heard.insert(from.rank, from);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let suspects = self.suspects.values().copied();
        suspects.chain(self.watch_at).chain(self.leave_at).min()
    }
}

impl ProgressThread {
    /// A broken connection may have cost messages. An agent says soon whether the process is gone; if it does not,
    /// or there is none, the peer counts as gone, so that nobody waits for ever.
    pub(super) fn notice_lost_peers(&mut self) {
        let now = Instant::now();
        while let Some(lost) = self.engine.poll_lost_peer() {
            self.leave_if_fenced(&lost.cause);
            let known = self
                .addresses
                .iter()
                .position(|address| address.as_ref() == Some(&lost.address));
            if let Some(index) = known {
                // Of one that was silent for long the agent had the time to speak.
                let is_overdue = self.link.is_none() || matches!(lost.cause, PeerDeath::Silent);
                self.suspect(Rank(index as u32), is_overdue);
            }
        }
        let due = self.peers.suspects.iter().filter(|&(_, &at)| at <= now);
        for rank in due.map(|(&rank, _)| rank).collect::<Vec<_>>() {
            // It may only have been away: from now on it counts as gone.
            if let Some(&identity) = self.peers.heard.get(&rank) {
                self.engine.fence(identity);
            }
            self.handle_departed(rank);
        }
        if self.peers.leave_at.take_if(|at| *at <= now).is_some() {
            self.worker.leave();
        }
    }

    /// While a reduction takes long, those are watched that it needs: the scheduler watches the members, and they it.
    pub(super) fn watch_peers(&mut self) {
        let now = Instant::now();
        let needed = match &self.scheduler {
            Some(scheduler) => scheduler.running() > 0,
            None => !self.kept.is_empty(),
        };
        if !needed {
            self.peers.watch_at = None;
            return self.watch(BTreeSet::new());
        }
        if *self.peers.watch_at.get_or_insert(now + WATCH_INTERVAL) > now {
            return;
        }
        self.peers.watch_at = Some(now + WATCH_INTERVAL);
        let mut needed = match &self.scheduler {
            Some(scheduler) => scheduler.needed(),
            None => BTreeSet::from([SCHEDULER]),
        };
        needed.remove(&self.shared.rank);
        needed.retain(|rank| !self.peers.suspects.contains_key(rank));
        self.watch(needed);
    }

    fn watch(&mut self, needed: BTreeSet<Rank>) {
        let before = std::mem::replace(&mut self.peers.watched, needed.clone());
        for rank in before.difference(&needed) {
            if let Some(address) = &self.addresses[rank.index()]
                && let Ok(peer) = self.engine.peer(address)
            {
                self.engine.unwatch(peer);
            }
        }
        for rank in needed {
            if let Some(address) = &self.addresses[rank.index()] {
                match self.engine.watch(address) {
                    Ok(()) | Err(SubmitError::Busy { .. }) => {}
                    Err(_) => self.suspect(rank, self.link.is_none()),
                }
            }
        }
    }

    fn suspect(&mut self, rank: Rank, is_overdue: bool) {
        let now = Instant::now();
        let due = match is_overdue {
            true => now,
            false => now + AGENT_VERDICT_TIME,
        };
        let known = self.peers.suspects.entry(rank).or_insert(due);
        *known = due.min(*known);
        if rank == SCHEDULER && self.worker.has_left() {
            // That may have been lost with the connection.
            self.peers.leave_at = Some(now + LEAVE_INTERVAL);
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
            self.forget_scheduler();
        }
    }

    /// The agent says that a rank is gone: nothing can be said to it any more.
    pub(super) fn handle_gone(&mut self, rank: Rank) {
        self.addresses[rank.index()] = None;
        self.handle_departed(rank);
        if rank == SCHEDULER {
            self.forget_scheduler();
        }
    }

    /// The scheduler will not hear anything from this rank any more.
    fn forget_scheduler(&mut self) {
        self.addresses[SCHEDULER.index()] = None;
        self.unsent_to_scheduler.clear();
        self.peers.leave_at = None;
    }

    fn handle_departed(&mut self, rank: Rank) {
        let now = self.now();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.handle_departed(now, rank);
        } else if rank == SCHEDULER {
            self.give_up(&ReductionError::SchedulerLost { rank });
        }
        self.unsent_to_workers.remove(&rank);
        self.peers.suspects.remove(&rank);
    }

    /// Nothing can be reduced on this rank any more. That is the last that it tells the scheduler.
    pub(super) fn give_up(&mut self, error: &ReductionError) {
        if !self.worker.has_left() {
            self.unsent_to_scheduler.clear();
            self.shared.set_failed(true);
            self.worker.fail_all(error);
        }
    }
}

/// How long after a connection broke the agent is waited for to say that the peer is gone. Its word may have to go through
/// the launcher, over links that are mended.
const AGENT_VERDICT_TIME: Duration = Duration::from_secs(10);
/// How long a reduction may take before the ranks that it needs are watched, and how often it is looked who these are.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a connection to the scheduler broke it is told again that this rank has left.
const LEAVE_INTERVAL: Duration = Duration::from_secs(1);
