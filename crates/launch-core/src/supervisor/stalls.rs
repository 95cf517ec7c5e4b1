//! Jobs that make no progress any more.

use std::{collections::BTreeSet, time::Duration};

use ropewalk_names::{HostId, Rank};

use super::{Action, Phase, SIGTERM, Supervisor};
use crate::{
    event::JobEvent,
    job::Stall,
    protocol::{Down, Order},
    verdict::Ending,
};

/// What is known of a job's progress.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When the last was made, as far as is known.
    active_at: Duration,
    /// It was told since then that the job is about to end.
    is_warned: bool,
    /// A rank or a host was lost, and the job went on.
    has_lost: bool,
    /// The hosts on which a rank would wait for ever for one that is lost.
    may_hang: BTreeSet<HostId>,
    /// The fences in which somebody waits.
    fences: Vec<(u32, String)>,
}

impl Supervisor {
    /// Ranks made progress: whatever counts as such comes to this, from agents as [`Report::Active`](crate::protocol::Report::Active).
    pub(super) fn note_progress(&mut self, now: Duration) {
        self.progress.active_at = now;
        self.progress.is_warned = false;
    }

    pub(super) fn note_hanging(&mut self, host: HostId, may_hang: bool) {
        match may_hang {
            true => self.progress.may_hang.insert(host),
            false => self.progress.may_hang.remove(&host),
        };
    }

    /// Somebody was lost, and the job goes on; a `rank` may count as running still.
    pub(super) fn note_loss(&mut self, what: String, rank: Option<Rank>) {
        self.watch_progress();
        if self.running.keys().any(|&other| Some(other) != rank) {
            let stall = self.stall_limit();
            self.tell(JobEvent::Lost { what, stall });
        }
    }

    /// Has the agents look for progress, if that is wanted from the first loss on.
    pub(super) fn watch_progress(&mut self) {
        if self.plan.watches_losses() && !std::mem::replace(&mut self.progress.has_lost, true) {
            self.actions
                .push_back(Action::Send(Down::Order(Order::WatchProgress)));
        }
    }

    pub(super) fn note_fence(&mut self, event: &JobEvent) {
        let fences = &mut self.progress.fences;
        match event {
            JobEvent::FenceBegan { group, fence } => fences.push((*group, fence.clone())),
            JobEvent::FenceEnded { group, fence, .. } => {
                fences.retain(|(known, name)| known != group || name != fence);
            }
            _ => {}
        }
    }

    /// After how long without progress the job ends, if it does as things are.
    pub(super) fn stall_limit(&self) -> Option<Duration> {
        let progress = &self.progress;
        let hangs = |host: &HostId| !self.hosts[host.0 as usize].is_over;
        match self.plan.stall {
            Stall::After(limit) => Some(limit),
            Stall::AfterLoss(limit) => {
                (progress.has_lost && progress.may_hang.iter().any(hangs)).then_some(limit)
            }
            Stall::Never => None,
        }
    }

    #[cfg(test)]
    pub(super) fn progress_made_at(&self) -> Duration {
        self.progress.active_at
    }

    /// When it is told that the job is about to end for want of progress, or it ends. Agents look four times within the
    /// limit, so that what they told last may be so much older.
    pub(super) fn stall_deadline(&self) -> Option<Duration> {
        let limit = self.stall_limit().filter(|_| self.phase == Phase::Running)?;
        let is_up = self.hosts.iter().all(|host| host.is_ready || host.is_over);
        let quiet = match self.warns() {
            true => limit / 2,
            false => limit,
        };
        // For a rank that is about to be started again the others wait rightly.
        let is_watched = is_up && !self.running.is_empty() && !self.respawns.are_due();
        is_watched.then(|| {
            self.progress
                .active_at
                .saturating_add(quiet.saturating_add(limit / 4))
        })
    }

    /// Says if a warning comes before the end: whoever has a job go on with fewer ranks does not want it to end unawares.
    fn warns(&self) -> bool {
        self.plan.survives_failures() && !self.progress.is_warned
    }

    /// Ends a job in which there is no progress, and names the ranks that are left.
    pub(super) fn look_for_stall(&mut self, now: Duration) {
        let is_due = self.stall_deadline().is_some_and(|at| at <= now);
        let Some(limit) = self.stall_limit().filter(|_| is_due) else {
            return;
        };
        let who = self.who_waits();
        if self.warns() {
            self.progress.is_warned = true;
            let after = limit / 2;
            let ends_after = limit - after;
            self.tell(JobEvent::Stalled {
                after,
                who,
                ends_after,
            });
        } else {
            self.end(now, Ending::Stalled { after: limit, who }, SIGTERM);
        }
    }

    /// The ranks that are left, those of them that are stopped, and where others wait.
    fn who_waits(&self) -> String {
        let ranks: Vec<Rank> = self.running.keys().copied().collect();
        let mut text = match ranks[..] {
            [Rank(only)] => format!("rank {only} runs"),
            _ => format!("ranks {} run", ranges(&ranks)),
        };
        let stopped = self.stopped.keys();
        let stopped = stopped.filter_map(|rank| Some((rank, self.running.get(rank)?)));
        for (rank, running) in stopped.take(8) {
            let host = &self.hosts[running.host.0 as usize].name;
            text += &format!(", rank {rank} on host {host} is stopped");
        }
        for (group, fence) in self.progress.fences.iter().take(4) {
            text += &match group {
                0 => format!(", some wait in fence {fence}"),
                group => format!(", some of group {group} wait in fence {fence}"),
            };
        }
        text
    }
}

/// `0-3, 7`, and no more than a line of it.
fn ranges(ranks: &[Rank]) -> String {
    const PARTS_MAX: usize = 16;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank.0 => *last = rank.0,
            _ => runs.push((rank.0, rank.0)),
        }
    }
    let part = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let parts: Vec<_> = runs.iter().take(PARTS_MAX).map(part).collect();
    let more = if runs.len() > PARTS_MAX { ", .." } else { "" };
    parts.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks in a row are one part.
    #[test]
    fn ranks_are_named_in_ranges() {
        let of = |ranks: &[u32]| ranges(&ranks.iter().copied().map(Rank).collect::<Vec<_>>());
        assert_eq!(of(&[0, 1, 2, 3, 7, 9, 10]), "0-3, 7, 9-10");
        let many: Vec<u32> = (0..100).map(|rank| 2 * rank).collect();
        assert!(of(&many).ends_with(", 30, .."));
    }
}
