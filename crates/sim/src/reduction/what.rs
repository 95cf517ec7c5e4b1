//! The events of a simulated reduction.

use std::collections::BTreeMap;

use ropewalk_reduce_core::{ChunkHeader, FromScheduler, Grant, Member, Session, Site, StreamId, ToScheduler};

use super::Calls;
use crate::{Nanos, Process};

/// The chunks of a result by their first byte: their lengths and words.
pub(super) type Words = BTreeMap<u64, (u64, u64)>;

/// Results by the number of their call.
pub(super) type Results = BTreeMap<u64, Words>;

#[derive(Clone, Debug)]
pub(super) enum What {
    Call,
    /// The copy of the original that a rank was called with is kept: its call counts.
    Acknowledged,
    /// A copy of this member's original is here.
    Copied(Member),
    /// With results that are short, when they are complete or their ends are told.
    ToScheduler(Site, ToScheduler, Results),
    /// With an end, a result that is short.
    FromScheduler(Site, FromScheduler, Results),
    /// At a relay: from a rank of its group, to a scheduler.
    Collect(Parcel),
    /// At a relay: from a scheduler, to ranks of its group.
    Spread(Vec<Parcel>),
    /// At their receiver.
    Parcels(Vec<Parcel>),
    /// A relay passes on what it holds.
    RelayDue,
    /// The answer to an end.
    EndHeard(Site, Session),
    Grant(Grant),
    /// The chunk of this number from a site, and its word.
    Chunk(Site, u64, ChunkHeader, u64),
    /// The chunk of this number has arrived, at a time by the clock of the receiver.
    Answered(u64, Nanos),
    Unreachable(Site),
    Folded(Session, StreamId, u32),
    /// A site was lost.
    Lost(Site),
    /// The agent sees that its rank is gone.
    RankGone,
    SchedulerDue,
    Fault(usize),
    Kill(u32),
    /// A rank does not want its results any more.
    Cancel,
    Thaw(u32),
    Heal(u32, u32),
    /// One host has heard nothing of another one for long, if the cut between them lasts.
    Silent(u32, u32),
}

/// A message to or from a scheduler, in a job with relays. It is taken once, on whichever way it comes.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    /// Those of a sender ascend.
    pub(super) number: u64,
    pub(super) from: Process,
    pub(super) to: Process,
    pub(super) bytes: u64,
    pub(super) what: Box<What>,
}

impl Parcel {
    /// The bytes of several together. A result that goes to all of them is in them once.
    pub(super) fn bytes_together(parcels: &[Self]) -> u64 {
        let mut results = BTreeMap::new();
        let mut bytes = 0;
        for parcel in parcels {
            bytes += parcel.bytes;
            if let What::FromScheduler(_, _, of_end) = &*parcel.what {
                bytes -= result_bytes(of_end);
                results.extend(of_end.clone());
            }
        }
        bytes + result_bytes(&results)
    }
}

impl What {
    /// Says if it may go through other hosts, as all messages but chunks do.
    pub(super) fn may_be_forwarded(&self) -> bool {
        !matches!(self, Self::Chunk(..))
    }
}

/// The bytes of results that go with a message.
pub(super) fn result_bytes(results: &Results) -> u64 {
    let chunks = results.values().flat_map(Words::values);
    chunks.map(|(bytes, _)| bytes).sum()
}

/// Rows grow with the classes, and the root's with the members and the contributions that come with it.
pub(super) fn row_bytes(message: &FromScheduler, calls: &Calls) -> u64 {
    match message {
        FromScheduler::Row(row) => {
            20 * (row.nodes.len() + row.members.len()) as u64
                + calls.bytes_of(row.session.call) * row.given.len() as u64
        }
        _ => 0,
    }
}
