//! Jobs in which nothing happens any more.

use std::time::Duration;

use ropewalk_group::Rank;

use super::{Phase, SIGTERM, Supervisor};
use crate::{event::JobEvent, verdict::Ending};

/// What is known of a job's progress.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// When a rank was last known to do something.
    active_at: Duration,
    /// It was told that nothing happens.
    is_told: bool,
    /// The fences in which somebody waits.
    fences: Vec<(u32, String)>,
}

impl Supervisor {
    /// Ranks did something.
    pub(super) fn note_progress(&mut self, now: Duration) {
        self.progress.active_at = now;
        self.progress.is_told = false;
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

    /// Agents look four times in the time that counts as a stall, so that what they told last may be so much older.
    pub(super) fn stall_deadline(&self) -> Option<Duration> {
        let stall = self.plan.stall.filter(|_| self.phase == Phase::Running)?;
        let is_up = self.hosts.iter().all(|host| host.is_ready || host.is_over);
        let is_watched = is_up && !self.running.is_empty() && !self.progress.is_told;
        is_watched.then(|| self.progress.active_at.saturating_add(stall + stall / 4))
    }

    /// Names the ranks of a job in which nothing happens, and ends it unless it is to go on.
    pub(super) fn look_for_stall(&mut self, now: Duration) {
        if self.stall_deadline().is_none_or(|at| at > now) {
            return;
        }
        let after = self.plan.stall.unwrap_or_default();
        self.progress.is_told = true;
        let who = self.who_waits();
        if self.on_failure.ends_job() {
            self.end(now, Ending::Stalled { after, who }, SIGTERM);
        } else {
            self.tell(JobEvent::Stalled { after, who });
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
