//! Ranks that stand still while the user has suspended the job.

use std::collections::BTreeSet;

use ropewalk_names::Rank;

use super::{Action, HostAgent};
use crate::protocol::Report;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// What is known of stopped ranks.
#[derive(Debug, Default)]
pub(super) struct Suspension {
    /// Ranks that a signal has stopped, not counting those below.
    stopped: BTreeSet<Rank>,
    /// While the job is suspended: the ranks that were stopped for that.
    suspended: Option<BTreeSet<Rank>>,
}

impl HostAgent {
    /// The user suspends the job: all ranks stop, and none is started. Their process groups are orphaned (POSIX 3.264), so that
    /// SIGTSTP would not stop them. Who is stopped already stays so afterwards.
    pub fn handle_suspend(&mut self) {
        if self.suspension.suspended.is_some() {
            return;
        }
        let ranks: BTreeSet<Rank> = self
            .running
            .difference(&self.suspension.stopped)
            .copied()
            .collect();
        let signals = ranks.iter().map(|&rank| Action::Signal(rank, SIGSTOP));
        self.actions.extend(signals);
        self.suspension.suspended = Some(ranks);
    }

    /// The job goes on.
    pub fn handle_resume(&mut self) {
        let suspended = self.suspension.suspended.take().unwrap_or_default();
        let ranks = suspended.intersection(&self.running);
        self.actions
            .extend(ranks.map(|&rank| Action::Signal(rank, SIGCONT)));
    }

    /// Whether the user has suspended the job.
    pub(super) fn is_suspended(&self) -> bool {
        self.suspension.suspended.is_some()
    }

    /// A signal stopped a rank, or it goes on.
    pub fn handle_stopped(&mut self, rank: Rank, signal: Option<i32>) {
        let Suspension { stopped, suspended } = &mut self.suspension;
        let report = match signal {
            // The launcher knows why.
            Some(_) if suspended.as_ref().is_some_and(|ranks| ranks.contains(&rank)) => return,
            Some(signal) => {
                stopped.insert(rank);
                Report::Stopped { rank, signal }
            }
            None => {
                stopped.remove(&rank);
                Report::Continued { rank }
            }
        };
        self.report(report);
    }
}

impl Suspension {
    /// A rank is gone.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.stopped.remove(&rank);
    }
}
