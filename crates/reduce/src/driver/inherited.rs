//! The contributions of ranks that are gone, in the memory of their agents.
//!
//! For the core each is a site of its own, which has one original and folds nothing. Nobody is there to work for it:
//! its parent in a tree reads the chunks that it grants, and the scheduler's rank answers for it.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_fabric::{Buffer, RegionHandle};
use ropewalk_names::Rank;
use ropewalk_reduce_core::{ChunkHeader, Chunking, Grant, Session, Site, StreamId};
use ropewalk_rpc::{Engine, Transfer};

use crate::message::Contribution;

/// The contributions that agents have inherited, and the reads of them that are under way.
#[derive(Default)]
pub(super) struct Inherited {
    contributions: BTreeMap<(Session, Rank), (Contribution, RegionHandle)>,
    /// Grants for contributions of which this rank's agent has not told yet.
    early: Vec<(Rank, StreamId, Grant)>,
    /// The chunks before this index are read or being read.
    read: BTreeMap<(Session, StreamId), u32>,
    reads: Vec<Read>,
}

/// A chunk that is being read.
struct Read {
    rank: Rank,
    chunk: ChunkHeader,
    transfer: Transfer<Buffer>,
}

impl Inherited {
    /// Contributions that are kept at most: those of reductions that this rank has no part in are not told to be over.
    const CONTRIBUTIONS_MAX: usize = 4_096;

    pub(super) fn insert(&mut self, rank: Rank, contribution: Contribution, handle: RegionHandle) {
        if self.contributions.len() == Self::CONTRIBUTIONS_MAX {
            self.contributions.pop_first();
        }
        self.contributions
            .insert((contribution.session, rank), (contribution, handle));
    }

    /// All of them.
    pub(super) fn contributions(&self) -> impl Iterator<Item = (Rank, &Contribution)> {
        let contributions = self.contributions.iter();
        contributions.map(|((_, rank), (contribution, _))| (*rank, contribution))
    }

    /// Reads what `parent` grants to the contribution of a rank. Returns false if that cannot be read.
    pub(super) fn grant(
        &mut self,
        engine: &mut Engine,
        rank: Rank,
        parent: StreamId,
        grant: Grant,
        chunking: &Chunking,
    ) -> bool {
        let Some((contribution, handle)) = self.contributions.get(&(grant.session, rank)) else {
            self.early.push((rank, parent, grant));
            return true;
        };
        let read = self.read.entry((grant.session, grant.to)).or_default();
        let begin = (*read).max(grant.taken);
        *read = begin.max(grant.until);
        for index in begin..grant.until {
            let range = match contribution.signature.length {
                Some(_) => chunking.range(grant.to.class, index),
                None => 0..contribution.length,
            };
            let into = engine.allocate((range.end - range.start) as usize);
            let Ok(transfer) = engine.pull(handle, range.start, into, READ_TIMEOUT) else {
                return false;
            };
            let chunk = ChunkHeader {
                session: grant.session,
                to: parent,
                from: grant.to.node,
                index,
                tokens: contribution.token,
            };
            self.reads.push(Read {
                rank,
                chunk,
                transfer,
            });
        }
        true
    }

    /// The grants that waited for this contribution.
    pub(super) fn take_early(&mut self, session: Session, rank: Rank) -> Vec<(StreamId, Grant)> {
        let is_for =
            |(known, _, grant): &mut (Rank, StreamId, Grant)| *known == rank && grant.session == session;
        let ready = self.early.extract_if(.., is_for);
        ready.map(|(_, parent, grant)| (parent, grant)).collect()
    }

    /// The chunks that have come, and the contributions that cannot be read.
    pub(super) fn collect(&mut self) -> (Vec<(ChunkHeader, Buffer)>, Vec<Rank>) {
        let (mut chunks, mut failed) = (Vec::new(), Vec::new());
        self.reads.retain_mut(|read| match read.transfer.try_take() {
            None => true,
            Some(Ok(buffer)) => {
                chunks.push((read.chunk, buffer));
                false
            }
            Some(Err(_)) => {
                failed.push(read.rank);
                false
            }
        });
        (chunks, failed)
    }

    /// A reduction is over.
    pub(super) fn forget(&mut self, session: Session) {
        self.contributions.retain(|(known, _), _| *known != session);
        self.early.retain(|(_, _, grant)| grant.session != session);
        self.read.retain(|(known, _), _| *known != session);
        self.reads.retain(|read| read.chunk.session != session);
    }
}

/// The site of the contribution that a rank has left, in a job of so many ranks.
pub(super) fn site_of_inherited(size: u32, rank: Rank) -> Site {
    Site(size + rank.0)
}

/// One chunk may take so long; an agent that is gone is noticed earlier.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
