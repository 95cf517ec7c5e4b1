//! Ranks that a signal stopped.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::{HostId, Rank};

use super::{SIGKILL, ground::Ground};
use crate::{event::JobEvent, job::OnStopped, protocol::Order, verdict::FailureKind};

/// The ranks that are stopped. They stand beside those that run, which are thousands and are kept small.
#[derive(Debug)]
pub(super) struct Stoppages {
    pub(super) on_stopped: OnStopped,
    stopped: BTreeMap<Rank, Stopped>,
}

#[derive(Clone, Copy, Debug)]
struct Stopped {
    signal: i32,
    /// Until then nobody need know: whoever stopped it may let it go on soon.
    tell_at: Option<Duration>,
    /// It was killed, for it had been stopped for too long.
    is_overdue: bool,
}

impl Default for Stoppages {
    fn default() -> Self {
        Self {
            on_stopped: OnStopped::Notice,
            stopped: BTreeMap::new(),
        }
    }
}

impl Stoppages {
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.stopped.keys().copied()
    }

    pub(super) fn forget_rank(&mut self, rank: Rank) {
        self.stopped.remove(&rank);
    }

    pub(super) fn handle_stopped(&mut self, now: Duration, ground: &Ground, rank: Rank, signal: i32) {
        let is_overdue = self.stopped.get(&rank).is_some_and(|known| known.is_overdue);
        if ground.running.contains_key(&rank) && !is_overdue {
            let stopped = Stopped {
                signal,
                tell_at: Some(now + ground.detect()),
                is_overdue: false,
            };
            self.stopped.insert(rank, stopped);
        }
    }

    pub(super) fn handle_continued(&mut self, ground: &mut Ground, host: HostId, rank: Rank) {
        let stopped = self.stopped.get(&rank).copied();
        if stopped.is_some_and(|stopped| stopped.is_overdue) {
            return;
        }
        self.stopped.remove(&rank);
        if stopped.is_some_and(|stopped| stopped.tell_at.is_none()) {
            let host = ground.name_of(host).to_owned();
            ground.tell(JobEvent::Continued { rank, host });
        }
    }

    /// Names the ranks that have been stopped for longer than anybody does without meaning it, and kills them
    /// if that is wanted: that they are gone is then a failure like others.
    pub(super) fn handle_timeout(&mut self, now: Duration, ground: &mut Ground) {
        let kills = self.on_stopped == OnStopped::Fail && ground.is_running();
        for (&rank, stopped) in &mut self.stopped {
            if stopped.tell_at.is_some_and(|at| at <= now)
                && let Some(running) = ground.running.get(&rank)
            {
                let (host, pid) = (running.host, running.pid);
                stopped.tell_at = None;
                if kills {
                    stopped.is_overdue = true;
                    let kill = Order::Signal {
                        rank: Some(rank),
                        signal: SIGKILL,
                    };
                    ground.order(host, kill);
                }
                ground.tell(JobEvent::Stopped {
                    rank,
                    host: ground.name_of(host).to_owned(),
                    pid,
                    signal: stopped.signal,
                });
            }
        }
    }

    /// The kind of a failure, if it is not that the rank was killed for having been stopped.
    pub(super) fn unless_overdue(&self, ground: &Ground, rank: Rank, kind: FailureKind) -> FailureKind {
        match (self.stopped.get(&rank), kind) {
            (Some(stopped), FailureKind::Signalled(SIGKILL) | FailureKind::OutOfMemory(_))
                if stopped.is_overdue =>
            {
                FailureKind::Stopped {
                    signal: stopped.signal,
                    after: ground.detect(),
                }
            }
            (_, kind) => kind,
        }
    }

    /// When the next has been stopped for too long.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.stopped.values().filter_map(|stopped| stopped.tell_at).min()
    }
}
