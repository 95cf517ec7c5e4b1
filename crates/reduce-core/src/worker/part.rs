use std::collections::BTreeMap;

use super::{gathering::Gathering, merge::Merge};
use crate::{
    canary::{Canary, is_put_back},
    chunks::{Chunking, Cut},
    ids::{Member, PlanId, Session, ShareId, StreamId, Token},
    message::{Row, Standing},
    scheduler::{Call, Roster},
    stream::Stream,
};

/// A session on this site.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) call: Call,
    pub(super) originals: BTreeMap<Member, Token>,
    /// Known from the first plan on.
    pub(super) chunking: Option<Chunking>,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// The newest plan of each share.
    pub(super) plans: BTreeMap<ShareId, PlanId>,
    pub(super) roster: Option<Roster>,
    pub(super) merge: Option<Merge>,
    pub(super) gathering: Gathering,
}

impl Part {
    pub(super) fn new(call: Call) -> Self {
        Self {
            call,
            originals: BTreeMap::new(),
            chunking: None,
            streams: BTreeMap::new(),
            plans: BTreeMap::new(),
            roster: None,
            merge: None,
            gathering: Gathering::default(),
        }
    }

    /// A node begins to work.
    pub(super) fn insert(&mut self, id: StreamId, stream: Stream) {
        let is_of_block =
            self.chunking.is_some_and(|chunking| chunking.blocks > 1) && stream.share != ShareId::SPREAD;
        if is_of_block && stream.parent.is_none() && !stream.children.is_empty() {
            self.gathering.note(stream.share, id);
        }
        self.streams.insert(id, stream);
    }

    /// Says which nodes of the root may grant places to the next blocks of a gather.
    pub(super) fn open_blocks(&mut self) -> Vec<StreamId> {
        let Some(chunking) = self.chunking else {
            return Vec::new();
        };
        let is_over = |id: &StreamId| self.streams.get(id).is_none_or(Stream::is_over);
        self.gathering
            .open_next(chunking.blocks_at_once() as usize, is_over)
    }

    pub(super) fn standing(&self, session: Session) -> Standing {
        Standing {
            session,
            call: self.call.clone(),
            originals: self
                .originals
                .iter()
                .map(|(&member, &token)| (member, token))
                .collect(),
            shares: self.merge.as_ref().map_or_else(Vec::new, Merge::standing),
            chunking: self.chunking,
            roster: self.roster.clone(),
            end: None,
        }
    }

    /// The chunks that a node works on.
    pub(super) fn cut(&self, stream: StreamId) -> Option<Cut> {
        let share = self.streams.get(&stream)?.share;
        Some(self.chunking?.cut(share))
    }

    pub(super) fn generation(&self) -> Option<u32> {
        self.roster.as_ref().map(|roster| roster.generation)
    }

    /// Gives up the older plans of a share, but for what they keep, and takes what a row gives and says of the whole.
    /// Returns the windows that are of no use any more.
    pub(super) fn withdraw(&mut self, row: &Row) -> Vec<(StreamId, u32)> {
        self.plans.insert(row.share, row.plan);
        let is_given = |(member, _): &&(Member, Token)| row.given.contains(member);
        self.originals
            .extend(row.members.iter().filter(is_given).copied());
        self.chunking = Some(row.chunking);
        let begins_anew = self.generation() < Some(row.roster.generation);
        if begins_anew {
            self.merge = None;
        }
        self.roster = Some(row.roster.clone());
        let kept_of = |class: u16| match is_put_back(Canary::KeptPlanForgotten) {
            true => 0,
            false => row.kept.get(usize::from(class)).copied().unwrap_or_default(),
        };
        let forgotten = self.end_streams(|id, share| match share == row.share {
            _ if begins_anew => Some(0),
            true => Some(kept_of(id.class)),
            false => None,
        });
        if row.members_in_all > 0 {
            let merge = self.merge.get_or_insert_with(|| Merge::new(row.chunking));
            merge.note_row(row);
        }
        forgotten
    }

    /// Lets the nodes end at the chunk that `end_of` says; those that end at their beginning are gone. Returns the
    /// windows of the chunks from there on.
    pub(super) fn end_streams(
        &mut self,
        end_of: impl Fn(StreamId, ShareId) -> Option<u32>,
    ) -> Vec<(StreamId, u32)> {
        let mut forgotten = Vec::new();
        self.streams.retain(|&id, stream| {
            let Some(end) = end_of(id, stream.share) else {
                return true;
            };
            forgotten.extend(stream.end_at(end).into_iter().map(|slot| (id, slot)));
            end > 0
        });
        forgotten
    }
}
