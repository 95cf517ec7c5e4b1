//! The contributions of ranks that are gone, in the memory of their agents, or of ranks that keep copies.
//!
//! For the core each is a site of its own, which has one original and folds nothing. Nobody is there to work for it:
//! its parent in a tree reads the chunks that it grants, and the scheduler's rank answers for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use ropewalk_fabric::{Buffer, Held, RegionHandle};
use ropewalk_names::Rank;
use ropewalk_reduce_core::{ChunkHeader, Cut, Grant, Session, Site, StreamId};
use ropewalk_rpc::{Engine, Transfer};

use super::{
    progress::ProgressThread,
    sites::{Kind, Sites},
};
use crate::{
    folding::Memory,
    message::{Contribution, KeptCopy},
    source::shared_token,
};

/// The contributions that agents have inherited, and the reads of them that are under way.
#[derive(Default)]
pub(super) struct Inherited {
    contributions: BTreeMap<(Session, Site), (Contribution, Place)>,
    /// Grants for contributions of which this rank's agent has not told yet.
    early: Vec<(Site, StreamId, Grant)>,
    /// The chunks before this index are read or being read.
    read: BTreeMap<(Session, StreamId), u32>,
    reads: Vec<Read>,
    /// Chunks that need not be read from elsewhere.
    ready: Vec<(ChunkHeader, Memory)>,
}

/// The place of a contribution.
pub(super) enum Place {
    /// From this byte of the contribution on.
    Elsewhere(RegionHandle, u64),
    Here(Bytes),
    /// This rank is not in the group, and reads nothing.
    Nowhere,
}

/// A chunk that is being read.
struct Read {
    site: Site,
    chunk: ChunkHeader,
    transfer: Transfer<Buffer>,
}

impl Inherited {
    /// Contributions that are kept at most: those of reductions that this rank has no part in are not told to be over.
    const CONTRIBUTIONS_MAX: usize = 4_096;

    pub(super) fn insert(&mut self, site: Site, contribution: Contribution, place: Place) {
        if self.contributions.len() == Self::CONTRIBUTIONS_MAX {
            self.contributions.pop_first();
        }
        self.contributions
            .insert((contribution.session, site), (contribution, place));
    }

    pub(super) fn insert_copy(&mut self, site: Site, copy: KeptCopy) {
        let place = Place::Elsewhere(copy.handle, copy.begin);
        self.insert(site, copy.contribution, place);
    }

    /// Those that ranks have left to their agents.
    pub(super) fn left(&self, sites: Sites) -> impl Iterator<Item = (Rank, &Contribution)> {
        let contributions = self.contributions.iter();
        contributions.filter_map(move |((_, site), (contribution, _))| match sites.kind(*site) {
            Kind::Left(rank) => Some((rank, contribution)),
            Kind::Rank(_) | Kind::Copy { .. } => None,
        })
    }

    /// Says if a contribution is known.
    pub(super) fn contains(&self, session: Session, site: Site) -> bool {
        self.contributions.contains_key(&(session, site))
    }

    /// Reads what `parent` grants to the contribution at a site. Returns false if that cannot be read.
    pub(super) fn grant(
        &mut self,
        engine: &mut Engine,
        site: Site,
        parent: StreamId,
        grant: Grant,
        cut: Cut,
    ) -> bool {
        let Some((contribution, place)) = self.contributions.get(&(grant.session, site)) else {
            self.early.push((site, parent, grant));
            return true;
        };
        let read = self.read.entry((grant.session, grant.to)).or_default();
        let begin = (*read).max(grant.taken);
        *read = begin.max(grant.until);
        for index in begin..grant.until {
            let range = match contribution.signature.length {
                Some(_) => cut.range(grant.to.class, index),
                None => 0..contribution.length,
            };
            let chunk = ChunkHeader {
                session: grant.session,
                to: parent,
                from: grant.to.node,
                index,
                tokens: contribution.token,
            };
            let begin = range.start - cut.begin();
            let length = (range.end - range.start) as usize;
            let (handle, first) = match place {
                Place::Elsewhere(handle, first) => (handle, *first),
                Place::Here(bytes) => {
                    let bytes = &bytes[begin as usize..begin as usize + length];
                    self.ready.push((chunk, Memory::from(bytes)));
                    continue;
                }
                Place::Nowhere => return false,
            };
            let Some(from) = begin.checked_sub(first) else {
                return false;
            };
            let into = engine.allocate(length);
            let Ok(transfer) = engine.pull(handle, from, into, READ_TIMEOUT) else {
                return false;
            };
            self.reads.push(Read {
                site,
                chunk,
                transfer,
            });
        }
        true
    }

    /// The grants that waited for this contribution.
    pub(super) fn take_early(&mut self, session: Session, site: Site) -> Vec<(StreamId, Grant)> {
        let is_for =
            |(known, _, grant): &mut (Site, StreamId, Grant)| *known == site && grant.session == session;
        let ready = self.early.extract_if(.., is_for);
        ready.map(|(_, parent, grant)| (parent, grant)).collect()
    }

    /// The chunks that have come, and the contributions that cannot be read.
    pub(super) fn collect(&mut self) -> (Vec<(ChunkHeader, Memory)>, Vec<Site>) {
        let (mut chunks, mut failed) = (std::mem::take(&mut self.ready), Vec::new());
        self.reads.retain_mut(|read| match read.transfer.try_take() {
            None => true,
            Some(Ok(buffer)) => {
                chunks.push((read.chunk, Memory::Shared(buffer)));
                false
            }
            Some(Err(_)) => {
                failed.push(read.site);
                false
            }
        });
        (chunks, failed)
    }

    /// Says if chunks can be collected at once.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A reduction is over.
    pub(super) fn forget(&mut self, session: Session) {
        self.contributions.retain(|(known, _), _| *known != session);
        self.early.retain(|(_, _, grant)| grant.session != session);
        self.read.retain(|(known, _), _| *known != session);
        self.reads.retain(|read| read.chunk.session != session);
        self.ready.retain(|(chunk, _)| chunk.session != session);
    }
}

impl ProgressThread {
    /// The agent has inherited this of a rank.
    pub(super) fn inherit(&mut self, rank: Rank, held: &Held, handle: RegionHandle) {
        // What is no contribution was held for somebody else.
        let Ok(contribution) = postcard::from_bytes::<Contribution>(&held.label) else {
            return;
        };
        self.legacies.held.push((rank, contribution, handle));
        self.inherit_what_counts(None);
    }

    /// Takes over the contributions that lost ranks, also this one, have left in tables and with agents, of calls that
    /// go by the scheduler.
    pub(super) fn inherit_what_counts(&mut self, lost: Option<Rank>) {
        let shared = Arc::clone(&self.shared);
        let tables = shared.tables.as_ref();
        let waits = |(rank, contribution, _): &mut (Rank, Contribution, RegionHandle)| {
            // One that never waited for a place in a table has a token that was drawn.
            contribution.token == shared_token(contribution.session, contribution.member)
                && tables.is_some_and(|tables| tables.may_end(*rank, contribution.session))
        };
        let lost: BTreeSet<Rank> = self.peers.gone.iter().copied().chain(lost).collect();
        // As soon as the scheduler hears of a call it takes for lost what it has not heard of. So it hears at once of
        // all that is known when nothing more turns up: another rank may let a call leave its table meanwhile.
        let mut contributions = Vec::new();
        loop {
            let known = contributions.len();
            let counted = self.legacies.held.extract_if(.., |held| !waits(held));
            contributions.extend(
                counted.map(|(rank, contribution, handle)| (rank, contribution, Place::Elsewhere(handle, 0))),
            );
            let left = tables.map(|tables| tables.left_by(&lost, &mut self.legacies));
            contributions.extend(left.into_iter().flatten().map(|legacy| {
                let place = legacy.data.map_or(Place::Nowhere, Place::Here);
                (legacy.rank, legacy.contribution, place)
            }));
            if contributions.len() == known {
                break;
            }
        }
        if !contributions.is_empty() {
            self.inherit_all(contributions);
        }
    }

    fn inherit_all(&mut self, contributions: Vec<(Rank, Contribution, Place)>) {
        let now = self.now();
        if let Some(seat) = &mut self.seat {
            let left = contributions.iter();
            seat.inherit(now, left.map(|(rank, contribution, _)| (*rank, contribution)));
        }
        for (rank, contribution, place) in contributions {
            let session = contribution.session;
            let site = self.sites.of_left(rank);
            self.inherited.insert(site, contribution, place);
            for (parent, grant) in self.inherited.take_early(session, site) {
                self.grant_to_inherited(site, parent, grant);
            }
        }
    }

    /// A parent in a tree grants something to a site where nobody is.
    pub(super) fn grant_to_inherited(&mut self, site: Site, parent: StreamId, grant: Grant) {
        let Some(cut) = self.worker.cut(grant.session, parent) else {
            return;
        };
        if !self.inherited.grant(&mut self.engine, site, parent, grant, cut) {
            self.worker.handle_unreachable(site);
        }
    }
}

/// One chunk may take so long; an agent that is gone is noticed earlier.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
