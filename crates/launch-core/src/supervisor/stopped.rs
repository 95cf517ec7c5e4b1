//! Ranks that a signal stopped, and jobs that their user suspended.

use std::time::Duration;

use ropewalk_names::{HostId, Rank};

use super::{Action, Phase, SIGKILL, Supervisor};
use crate::{
    event::JobEvent,
    job::OnStopped,
    protocol::{Down, Order},
    tree::NodeId,
    verdict::FailureKind,
};

/// A rank that a signal stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    signal: i32,
    /// Until then nobody need know: whoever stopped it may let it go on soon.
    tell_at: Option<Duration>,
    /// It was killed, for it had been stopped for too long.
    is_overdue: bool,
}

impl Supervisor {
    /// The hosts that have something to do with the job still.
    pub fn hosts_left(&self) -> impl Iterator<Item = HostId> {
        let hosts = self.hosts.iter().zip(0..).filter(|(host, _)| !host.is_over);
        hosts.map(|(_, number)| HostId(number))
    }

    /// The job was suspended, with its clock, and goes on.
    pub fn handle_resumed(&mut self, now: Duration, suspended: Duration) {
        self.note_progress(now);
        self.notices.handle_resumed(suspended);
    }

    pub(super) fn handle_stopped(&mut self, now: Duration, rank: Rank, signal: i32) {
        let is_overdue = self.stopped.get(&rank).is_some_and(|known| known.is_overdue);
        if self.running.contains_key(&rank) && !is_overdue {
            let stopped = Stopped {
                signal,
                tell_at: Some(now + self.detect),
                is_overdue: false,
            };
            self.stopped.insert(rank, stopped);
        }
    }

    pub(super) fn handle_continued(&mut self, host: HostId, rank: Rank) {
        let stopped = self.stopped.get(&rank).copied();
        if stopped.is_some_and(|stopped| stopped.is_overdue) {
            return;
        }
        self.stopped.remove(&rank);
        if stopped.is_some_and(|stopped| stopped.tell_at.is_none()) {
            let host = self.hosts[host.0 as usize].name.clone();
            self.tell(JobEvent::Continued { rank, host });
        }
    }

    /// From now on this is what happens to ranks that stay stopped.
    pub fn set_on_stopped(&mut self, on_stopped: OnStopped) {
        self.on_stopped = on_stopped;
    }

    /// Names the ranks that have been stopped for longer than anybody does without meaning it, and kills them if that is
    /// wanted: that they are gone is then a failure like others.
    pub(super) fn tell_of_stopped(&mut self, now: Duration) {
        let mut events = Vec::new();
        for (&rank, stopped) in &mut self.stopped {
            if stopped.tell_at.is_some_and(|at| at <= now)
                && let Some(running) = self.running.get(&rank)
            {
                stopped.tell_at = None;
                if self.on_stopped == OnStopped::Fail && self.phase == Phase::Running {
                    stopped.is_overdue = true;
                    let kill = Order::Signal {
                        rank: Some(rank),
                        signal: SIGKILL,
                    };
                    let node = NodeId::of(running.host);
                    self.actions.push_back(Action::Send(Down::To(node, kill)));
                }
                events.push(JobEvent::Stopped {
                    rank,
                    host: self.hosts[running.host.0 as usize].name.clone(),
                    pid: running.pid,
                    signal: stopped.signal,
                });
            }
        }
        for event in events {
            self.tell(event);
        }
    }

    /// What a failure is, if it is not that the rank was killed for having been stopped.
    pub(super) fn unless_overdue(&self, rank: Rank, kind: FailureKind) -> FailureKind {
        match (self.stopped.get(&rank), kind) {
            (Some(stopped), FailureKind::Signalled(SIGKILL) | FailureKind::OutOfMemory(_))
                if stopped.is_overdue =>
            {
                FailureKind::Stopped {
                    signal: stopped.signal,
                    after: self.detect,
                }
            }
            (_, kind) => kind,
        }
    }

    /// When the next has been stopped for too long.
    pub(super) fn stopped_deadline(&self) -> Option<Duration> {
        self.stopped.values().filter_map(|stopped| stopped.tell_at).min()
    }
}
