//! The processes of a host's ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ropewalk_names::Rank;
use ropewalk_pmi as pmi;

/// The ranks of a host by what becomes of them.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) to_spawn: VecDeque<Rank>,
    pub(super) running: BTreeSet<Rank>,
    /// Ranks that failed and may get another process.
    pub(super) waiting: BTreeSet<Rank>,
    /// How far ranks were that closed their PMI connections in the middle of something: those that die do that first.
    pub(super) stages: BTreeMap<Rank, pmi::Stage>,
    /// All ranks were told to end.
    pub(super) is_ending: bool,
    /// All are gone, and the processes that they left behind are being killed, or are gone too.
    pub(super) swept: bool,
}

impl Lives {
    /// These ranks are to be started.
    pub(super) fn new(ranks: &[Rank]) -> Self {
        Self {
            to_spawn: ranks.iter().copied().collect(),
            running: BTreeSet::new(),
            waiting: BTreeSet::new(),
            stages: BTreeMap::new(),
            is_ending: false,
            swept: false,
        }
    }

    /// Nothing runs, or will.
    pub(super) fn are_over(&self) -> bool {
        self.running.is_empty() && self.to_spawn.is_empty() && self.waiting.is_empty()
    }
}
