use std::collections::BTreeMap;

use super::merge::Merge;
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
}

impl Part {
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

    /// Gives up the older plans of a share, but for what they keep, and takes what a row says of the whole.
    pub(super) fn withdraw(&mut self, row: &Row) {
        self.plans.insert(row.share, row.plan);
        self.chunking = Some(row.chunking);
        if self.generation() < Some(row.roster.generation) {
            self.streams.clear();
            self.merge = None;
        }
        self.roster = Some(row.roster.clone());
        self.streams.retain(|id, stream| {
            if stream.share != row.share {
                return true;
            }
            let kept = row.kept.get(usize::from(id.class)).copied().unwrap_or_default();
            stream.end_at(kept);
            kept > 0 && !is_put_back(Canary::KeptPlanForgotten)
        });
        if row.members_in_all > 0 {
            let merge = self.merge.get_or_insert_with(|| Merge::new(row.chunking));
            merge.note_row(row);
        }
    }
}
