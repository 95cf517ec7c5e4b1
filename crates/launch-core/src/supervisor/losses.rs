//! The failures of ranks and hosts, and how the program took them.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;

use super::{ground::Ground, groups::Groups};
use crate::verdict::{Ending, Failure, FailureKind};

/// The facts of the verdict on a job that failed, or did without those that did.
#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) failures: Vec<Failure>,
    /// The hosts whose agents were lost, in order of time.
    lost: Vec<String>,
    /// The fate of the first of these.
    how: String,
    recovery: Recovery,
    /// How far the ranks that just ended were with PMI.
    stages: BTreeMap<Rank, pmi::Stage>,
}

/// How the program took the loss of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Recovery {
    /// No rank has come to its end that did not fail.
    #[default]
    Unknown,
    /// All that did had heard who failed, and said that all went well.
    Made,
    /// One of them had not, or did not.
    NotMade,
}

impl Losses {
    /// True if the program did without the ranks that failed.
    pub(super) fn is_recovered(&self) -> bool {
        self.recovery == Recovery::Made
    }

    pub(super) fn note_stage(&mut self, rank: Rank, stage: pmi::Stage) {
        self.stages.insert(rank, stage);
    }

    pub(super) fn forget_rank(&mut self, rank: Rank) {
        self.stages.remove(&rank);
    }

    pub(super) fn note_lost_agent(&mut self, host: &str, how: &str) {
        if self.lost.is_empty() {
            how.clone_into(&mut self.how);
        }
        self.lost.push(host.to_owned());
    }

    /// A rank that the job began with came to a good end; `attached`, it had heard of those that failed.
    pub(super) fn note_good_end(&mut self, attached: bool) {
        self.recovery = match self.recovery {
            _ if !attached => Recovery::NotMade,
            Recovery::Unknown => Recovery::Made,
            known => known,
        };
    }

    /// The failure of a rank, as it is told.
    pub(super) fn failure(
        &self,
        now: Duration,
        ground: &Ground,
        groups: &Groups,
        (host, rank): (HostId, Rank),
        kind: FailureKind,
    ) -> Failure {
        let running = ground.running.get(&rank);
        Failure {
            rank,
            spawned: groups.spawned_as(rank),
            host: ground.name_of(host).to_owned(),
            pid: running.map(|running| running.pid),
            kind,
            stage: self.stages.get(&rank).cloned(),
            after: now,
        }
    }

    /// How a job ended whose hosts all came to their end.
    pub(super) fn ending(&mut self, continued: bool) -> Ending {
        let mut lost = std::mem::take(&mut self.lost).into_iter();
        match lost.next() {
            Some(host) => Ending::AgentLost {
                host,
                how: std::mem::take(&mut self.how),
                more: lost.collect(),
                continued,
            },
            None => Ending::Completed,
        }
    }
}
