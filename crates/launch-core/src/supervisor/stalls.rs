//! Jobs that make no progress any more.

use std::{collections::BTreeSet, time::Duration};

use ropewalk_names::{HostId, Rank};

use super::{ground::Ground, respawns::Respawns, stopped::Stoppages};
use crate::{
    event::JobEvent,
    job::Stall,
    protocol::{Down, Order},
    verdict::Ending,
};

/// The known progress of a job.
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
}

impl Progress {
    /// Ranks made progress: whatever counts as such comes to this, from agents as
    /// [`Report::Active`](crate::protocol::Report::Active).
    pub(super) fn note(&mut self, now: Duration) {
        self.active_at = now;
        self.is_warned = false;
    }

    #[cfg(test)]
    pub(super) fn made_at(&self) -> Duration {
        self.active_at
    }

    pub(super) fn note_hanging(&mut self, host: HostId, may_hang: bool) {
        match may_hang {
            true => self.may_hang.insert(host),
            false => self.may_hang.remove(&host),
        };
    }

    /// Somebody was lost, and the job goes on; a `rank` may count as running still.
    pub(super) fn note_loss(&mut self, ground: &mut Ground, what: String, rank: Option<Rank>) {
        self.watch(ground);
        if ground.running.keys().any(|&other| Some(other) != rank) {
            let stall = self.limit(ground);
            ground.tell(JobEvent::Lost { what, stall });
        }
    }

    /// Has the agents look for progress, if that is wanted from the first loss on.
    pub(super) fn watch(&mut self, ground: &mut Ground) {
        if ground.plan.watches_losses() && !std::mem::replace(&mut self.has_lost, true) {
            ground.send(Down::Order(Order::WatchProgress));
        }
    }

    /// After how long without progress the job ends, if it does as things are.
    pub(super) fn limit(&self, ground: &Ground) -> Option<Duration> {
        let hangs = |host: &HostId| !ground.hosts[host.0 as usize].is_over;
        match ground.plan.reactions.stall.limit {
            Stall::After(limit) => Some(limit),
            Stall::AfterLoss(limit) => (self.has_lost && self.may_hang.iter().any(hangs)).then_some(limit),
            Stall::Never => None,
        }
    }

    /// When it is told that the job is about to end for want of progress, or it ends. Agents look four times within the
    /// limit, so that their last news may be so much older.
    pub(super) fn deadline(&self, ground: &Ground, respawns: &Respawns) -> Option<Duration> {
        let limit = self.limit(ground).filter(|_| ground.is_running())?;
        let is_up = ground.hosts.iter().all(|host| host.is_ready || host.is_over);
        let quiet = match self.warns(ground) {
            true => limit / 2,
            false => limit,
        };
        // For a rank that is about to be started again the others wait rightly.
        let is_watched = is_up && !ground.running.is_empty() && !respawns.are_due();
        is_watched.then(|| self.active_at.saturating_add(quiet.saturating_add(limit / 4)))
    }

    /// A warning comes before the end: whoever has a job go on with fewer ranks does not want it to end unawares.
    fn warns(&self, ground: &Ground) -> bool {
        ground.plan.survives_failures() && !self.is_warned
    }

    /// Warns of the end of a job in which there is no progress, or says that it is due, and names the ranks
    /// that are left.
    pub(super) fn handle_timeout(
        &mut self,
        now: Duration,
        ground: &mut Ground,
        respawns: &Respawns,
        stoppages: &Stoppages,
    ) -> Option<Ending> {
        self.deadline(ground, respawns).filter(|&at| at <= now)?;
        let limit = self.limit(ground)?;
        let who = who_waits(ground, stoppages);
        if !self.warns(ground) {
            return Some(Ending::Stalled { after: limit, who });
        }
        self.is_warned = true;
        let after = limit / 2;
        ground.tell(JobEvent::Stalled {
            after,
            who,
            ends_after: limit - after,
        });
        None
    }
}

/// The ranks that are left, those of them that are stopped, and where others wait.
fn who_waits(ground: &Ground, stoppages: &Stoppages) -> String {
    let ranks: Vec<Rank> = ground.running.keys().copied().collect();
    let mut text = match ranks[..] {
        [Rank(only)] => format!("rank {only} runs"),
        _ => format!("ranks {} run", ranges(&ranks)),
    };
    let stopped = stoppages.ranks();
    let stopped = stopped.filter_map(|rank| Some((rank, ground.running.get(&rank)?)));
    for (rank, running) in stopped.take(8) {
        let host = ground.name_of(running.host);
        text += &format!(", rank {rank} on host {host} is stopped");
    }
    for (group, fence) in ground.fences.iter().take(4) {
        text += &match group {
            0 => format!(", some wait in fence {fence}"),
            group => format!(", some of group {group} wait in fence {fence}"),
        };
    }
    text
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
