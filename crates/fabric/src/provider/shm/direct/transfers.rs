//! One-sided operations that are done by copying, a piece at a time.

use std::collections::VecDeque;

use super::{
    board_slot::Attempt,
    peer_memory::{PeerMemory, Piece},
    writing_word::WritingWord,
};
use crate::{AccessError, provider::Memory, region_table::Access};

/// The operations of one endpoint that wait for their turn to be copied, in the order in which they came.
///
/// `P` names a peer, `O` an operation.
#[derive(Debug)]
pub(crate) struct Transfers<P, O> {
    queue: VecDeque<Transfer<P, O>>,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Transfer<P, O> {
    /// Its name.
    pub(crate) operation: O,
    /// Whose memory it is about.
    pub(crate) peer: P,
    /// The part of a region.
    pub(crate) access: Access,
    /// Our end of it.
    pub(crate) memory: Memory,
    done: usize,
}

/// How an operation left the queue.
#[derive(Debug)]
pub(crate) enum Ended<P, O> {
    /// It is done.
    Done(Transfer<P, O>),
    /// It was refused.
    Refused(Transfer<P, O>, AccessError),
    /// It has to be done by messages, from its beginning.
    NotDirect(Transfer<P, O>),
}

impl<P: Copy + Eq, O: Copy + Eq> Transfers<P, O> {
    /// No operations.
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
        }
    }

    /// Takes an operation up.
    pub(crate) fn push(&mut self, operation: O, peer: P, access: Access, memory: Memory) {
        self.queue.push_back(Transfer {
            operation,
            peer,
            access,
            memory,
            done: 0,
        });
    }

    /// Returns true if there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Forgets an operation; returns whether it was here.
    pub(crate) fn cancel(&mut self, operation: O) -> bool {
        let before = self.queue.len();
        self.queue.retain(|transfer| transfer.operation != operation);
        self.queue.len() < before
    }

    /// Hands back all operations with a peer.
    pub(crate) fn take(&mut self, peer: P) -> Vec<Transfer<P, O>> {
        let (taken, kept): (VecDeque<_>, VecDeque<_>) =
            (self.queue.drain(..)).partition(|transfer| transfer.peer == peer);
        self.queue = kept;
        taken.into()
    }

    /// Copies the next piece; then the operation after it is next. Returns how many bytes were copied, and how the
    /// operation ended if it did. `reach` gives the way to a peer's memory, if there is one.
    pub(crate) fn advance<'a>(
        &mut self,
        reach: impl FnOnce(P) -> Option<(&'a mut PeerMemory, &'a WritingWord)>,
    ) -> Option<(usize, Option<Ended<P, O>>)> {
        let mut transfer = self.queue.pop_front()?;
        let before = transfer.done;
        let outcome = match reach(transfer.peer) {
            Some((memory, writing)) => transfer.copy_piece(memory, writing),
            None => Attempt::NotDirect,
        };
        let copied = transfer.done - before;
        Some(match outcome {
            Attempt::Done if transfer.done < transfer.memory.size() => {
                self.queue.push_back(transfer);
                (copied, None)
            }
            Attempt::Done => (copied, Some(Ended::Done(transfer))),
            Attempt::NotDirect => (copied, Some(Ended::NotDirect(transfer))),
            Attempt::Refused(error) => (copied, Some(Ended::Refused(transfer, error))),
        })
    }
}

impl<P, O> Transfer<P, O> {
    fn copy_piece(&mut self, memory: &mut PeerMemory, writing: &WritingWord) -> Attempt {
        let end = self.memory.size().min(self.done + PIECE_SIZE);
        let range = self.done..end;
        let piece = Piece {
            access: &self.access,
            done: self.done as u64,
        };
        let outcome = match &mut self.memory {
            Memory::Into(buffer) => memory.read(piece, &mut buffer[range]),
            Memory::From(bytes) => memory.write(piece, &bytes[range], writing),
        };
        if outcome == Attempt::Done {
            self.done = end;
        }
        outcome
    }
}

/// The size of a piece that is copied at once, in bytes. At the 6 GB/s of the slowest way it takes 0.7 ms: a
/// process that waits for messages meanwhile does not wait longer.
const PIECE_SIZE: usize = 4 << 20;
