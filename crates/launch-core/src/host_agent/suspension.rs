//! Ranks that stand still while the user has suspended the job.

use std::collections::BTreeSet;

use ropewalk_names::Rank;

use super::Action;
use crate::protocol::Report;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// The ranks that are stopped.
#[derive(Debug, Default)]
pub(super) struct Suspension {
    /// Ranks that a signal has stopped, not counting those below.
    stopped: BTreeSet<Rank>,
    /// While the job is suspended: the ranks that were stopped for that.
    suspended: Option<BTreeSet<Rank>>,
}

impl Suspension {
    /// The job is suspended.
    pub(super) fn is_active(&self) -> bool {
        self.suspended.is_some()
    }

    /// Suspends the ranks that run, unless they are. Who is stopped already stays so afterwards.
    pub(super) fn begin(&mut self, running: &BTreeSet<Rank>) -> Vec<Action> {
        if self.is_active() {
            return Vec::new();
        }
        let ranks: BTreeSet<Rank> = running.difference(&self.stopped).copied().collect();
        let signals = ranks.iter().map(|&rank| Action::Signal(rank, SIGSTOP)).collect();
        self.suspended = Some(ranks);
        signals
    }

    /// Lets those that are left go on.
    pub(super) fn end(&mut self, running: &BTreeSet<Rank>) -> Vec<Action> {
        let suspended = self.suspended.take().unwrap_or_default();
        let ranks = suspended.intersection(running);
        ranks.map(|&rank| Action::Signal(rank, SIGCONT)).collect()
    }

    /// A signal stopped a rank, or it goes on. Returns what the launcher is told.
    pub(super) fn handle_stopped(&mut self, rank: Rank, signal: Option<i32>) -> Option<Report> {
        let Self { stopped, suspended } = self;
        match signal {
            // The launcher knows why.
            Some(_) if suspended.as_ref().is_some_and(|ranks| ranks.contains(&rank)) => None,
            Some(signal) => {
                stopped.insert(rank);
                Some(Report::Stopped { rank, signal })
            }
            None => {
                stopped.remove(&rank);
                Some(Report::Continued { rank })
            }
        }
    }

    /// A rank is gone.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.stopped.remove(&rank);
    }
}
