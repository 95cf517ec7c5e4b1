use std::ops::Range;

#[cfg(doc)]
use super::Worker;
use crate::{
    ids::{Member, Session, Site, StreamId},
    message::{ChunkHeader, Grant, ToScheduler},
    scheduler::End,
};

/// Something that a driver has to do for a [`Worker`].
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerAction {
    /// Send to the scheduler, which may be at this very site.
    Tell(Site, ToScheduler),
    /// Send to a child in a tree. A driver that reads the originals of processes that are gone itself takes what it
    /// grants to such a site as what it has to read.
    Grant {
        /// The site of the child.
        to: Site,
        /// The node that grants.
        parent: StreamId,
        /// The grant.
        grant: Grant,
        /// The child knows of it without being told.
        is_known: bool,
    },
    /// Send a chunk; answered by [`Worker::handle_delivered`] or
    /// [`Worker::handle_undelivered`] once its memory may be used again.
    SendChunk(Chunk),
    /// Fold operands from left to right; answered by [`Worker::handle_folded`]. One at a time.
    Fold {
        /// The session.
        session: Session,
        /// The node.
        stream: StreamId,
        /// The chunk, by its index in the class.
        index: u32,
        /// The bytes of the vector.
        range: Range<u64>,
        /// From left to right, at least one.
        operands: Vec<Place>,
        /// Where the outcome goes: a window, which may be that of an operand, or the result, which may be one too.
        into: Place,
    },
    /// The chunks in these windows, each that of a node and a slot, are of no use any more. Windows are free once the
    /// sends and the fold that are under way have been answered.
    Forget(Session, Vec<(StreamId, u32)>),
    /// A session is over, and the user's call ends. Originals, windows and the result are free once the sends and
    /// the fold that are under way have been answered.
    Finished(Session, End),
}

/// A chunk on its way from a node to its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The site of the parent.
    pub to: Site,
    /// This is sent with the bytes.
    pub header: ChunkHeader,
    /// The bytes of the vector.
    pub range: Range<u64>,
    /// Where it is at the sender.
    pub place: Place,
}

/// Memory of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A member's original.
    Original(Member),
    /// The buffer for one child's chunk in a window of a node.
    Window {
        /// The node.
        stream: StreamId,
        /// The window; each is used again for later chunks.
        slot: u32,
        /// The number of the child; 0 also for the outcome.
        child: usize,
    },
    /// The root's result.
    Result,
}
