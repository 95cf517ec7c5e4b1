//! The ranks of a host, as its agent reaches them.

use std::{collections::BTreeMap, ops::Range};

use litemap::LiteMap;
use ropewalk_fabric::{HoldId, memfd::HeldMemfd};
use ropewalk_names::Rank;

use super::rank_io::{RankIo, Sockets};

/// The ranks by their number on this host, in the job, and by their processes.
pub(super) struct RankTable {
    /// By their number on this host; those that are gone have only what is still to be read.
    pub(super) ios: Vec<Option<RankIo>>,
    pub(super) indices: BTreeMap<Rank, usize>,
    pub(super) pids: LiteMap<i32, usize>,
    /// Memory of ranks that live; that of the dead is with the endpoint.
    pub(super) held: BTreeMap<(Rank, HoldId), HeldMemfd>,
}

impl RankTable {
    /// These ranks, none of which runs yet.
    pub(super) fn new(ranks: &[Rank]) -> Self {
        let mut table = Self {
            ios: Vec::new(),
            indices: BTreeMap::new(),
            pids: LiteMap::new(),
            held: BTreeMap::new(),
        };
        table.add(ranks);
        table
    }

    /// Further ranks. Returns their numbers on this host.
    pub(super) fn add(&mut self, ranks: &[Rank]) -> Range<usize> {
        let first = self.ios.len();
        self.indices.extend(ranks.iter().copied().zip(first..));
        self.ios.resize_with(first + ranks.len(), || None);
        first..self.ios.len()
    }

    pub(super) fn sockets(&mut self, index: usize) -> Option<(Rank, &mut Sockets)> {
        let io = self.ios.get_mut(index)?.as_mut()?;
        Some((io.rank, io.sockets.as_mut()?))
    }

    pub(super) fn sockets_of(&mut self, rank: Rank) -> Option<(usize, &mut Sockets)> {
        let index = *self.indices.get(&rank)?;
        Some((index, self.sockets(index)?.1))
    }

    /// A rank that is gone, and all of whose output was read, is forgotten.
    pub(super) fn forget_if_over(&mut self, index: usize) {
        let is_over = |io: &RankIo| io.sockets.is_none() && io.outputs.iter().all(Option::is_none);
        if self.ios[index].as_ref().is_some_and(is_over) {
            self.ios[index] = None;
        }
    }
}
