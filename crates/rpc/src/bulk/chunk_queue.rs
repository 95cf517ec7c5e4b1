//! The chunks of a pipelined transfer: in which order they are cut, moved, taken and filled.

use std::{collections::VecDeque, ops::Range, task, task::Poll, time::Instant};

use ropewalk_fabric::Buffer;

use super::{
    checksum::Verifier,
    flow::{Flow, NextChunk},
    pipeline::{Controller, Pipeline},
};
use crate::{BulkHandle, TransferError};

/// The chunks of one pipelined transfer, shared by the engine that moves them and the owner who takes them. A chunk of
/// a pull is moved, then taken; a chunk of a push is taken, filled, then moved.
///
/// The engine starts the moves that [`next_move`](Self::next_move) gives, and reports the end of each by
/// [`handle_moved`](Self::handle_moved) or [`fail`](Self::fail). The owner calls [`take`](Self::take), and for a chunk
/// of a push then [`handle_filled`](Self::handle_filled) or [`handle_unfilled`](Self::handle_unfilled).
pub(crate) struct ChunkQueue {
    direction: Direction,
    /// The chunks for the owner, in order; a chunk that has not arrived has no buffer yet.
    next: VecDeque<(u64, Option<Buffer>)>,
    /// How many chunks the owner has taken: the number of the first of `next`.
    taken: u64,
    /// How many chunks the owner is filling.
    filling: usize,
    /// The filled chunks that the engine has not taken yet.
    filled: VecDeque<(u64, Buffer)>,
    /// How many filled chunks are on their way.
    pushing: usize,
    /// How many moves were begun.
    moves: u64,
    /// The range that is not cut into chunks yet.
    flow: Flow,
}

enum Direction {
    Pull {
        handle: BulkHandle,
        verifier: Option<Verifier>,
    },
    Push,
}

/// A chunk for the engine to move: into the buffer if the transfer is a pull, out of it if it is a push.
pub(crate) struct ChunkMove {
    /// The number of the move.
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
    pub(crate) buffer: Buffer,
}

impl ChunkQueue {
    /// A pull of this range, which is inside what the handle shows.
    pub(crate) fn pull(handle: &BulkHandle, range: Range<u64>, pipeline: Pipeline) -> Self {
        let direction = Direction::Pull {
            verifier: Verifier::new(handle, range.clone()),
            handle: handle.clone(),
        };
        Self::new(direction, range, pipeline)
    }

    /// A push of this range.
    pub(crate) fn push(range: Range<u64>, pipeline: Pipeline) -> Self {
        Self::new(Direction::Push, range, pipeline)
    }

    fn new(direction: Direction, range: Range<u64>, pipeline: Pipeline) -> Self {
        Self {
            direction,
            next: VecDeque::new(),
            taken: 0,
            filling: 0,
            filled: VecDeque::new(),
            pushing: 0,
            moves: 0,
            flow: Flow::new(range, pipeline),
        }
    }

    /// The next chunk to move, if more chunks should be on their way. Chunks to be filled are prepared too; `allocate`
    /// makes the memory of chunks.
    pub(crate) fn next_move(&mut self, mut allocate: impl FnMut(usize) -> Buffer) -> Option<ChunkMove> {
        self.flow.attend();
        loop {
            if let Some((offset, buffer)) = self.filled.pop_front() {
                self.pushing += 1;
                return Some(self.begin_move(offset, buffer));
            }
            if !self.wants_chunk() {
                return None;
            }
            let NextChunk {
                offset,
                length,
                buffer,
            } = self.flow.cut()?;
            let buffer = buffer.unwrap_or_else(|| allocate(length));
            match self.direction {
                Direction::Pull { .. } => {
                    self.next.push_back((offset, None));
                    return Some(self.begin_move(offset, buffer));
                }
                Direction::Push => self.next.push_back((offset, Some(buffer))),
            }
        }
    }

    /// A move has ended: the chunk came in this buffer if the transfer is a pull, or was written.
    pub(crate) fn handle_moved(&mut self, sequence: u64, buffer: Option<Buffer>) {
        if let Direction::Push = self.direction {
            self.pushing -= 1;
            return;
        }
        let at = sequence.checked_sub(self.taken);
        let place = at.and_then(|at| self.next.get_mut(usize::try_from(at).ok()?));
        if let Some((_, arrived)) = place {
            *arrived = buffer;
        }
    }

    /// The transfer failed.
    pub(crate) fn fail(&mut self, error: TransferError) {
        self.next.clear();
        self.filled.clear();
        self.flow.fail(error);
    }

    /// True if the engine has nothing left to do.
    pub(crate) fn is_over(&self) -> bool {
        let is_moved = match self.direction {
            Direction::Pull { .. } => self.next.iter().all(|(_, arrived)| arrived.is_some()),
            Direction::Push => self.is_finished(),
        };
        !self.flow.is_open() || (is_moved && self.flow.is_cut_up())
    }

    /// The waker of the owner, if there is something for the owner.
    pub(crate) fn take_waker(&mut self) -> Option<task::Waker> {
        let has_next = matches!(self.next.front(), Some((_, Some(_))));
        let is_awaited = has_next || !self.flow.is_open() || self.is_finished();
        is_awaited.then(|| self.flow.take_waker()).flatten()
    }

    /// The next chunk for the owner, if it is here; its memory is what came, or what is to be filled.
    pub(crate) fn take(&mut self, now: Instant) -> Poll<Option<Result<(u64, Buffer), TransferError>>> {
        if let Some(end) = self.flow.take_end() {
            return Poll::Ready(end.map(Err));
        }
        let first = self.next.front_mut();
        let Some((offset, buffer)) = first.and_then(|(offset, buffer)| Some((*offset, buffer.take()?)))
        else {
            if self.is_finished() {
                return Poll::Ready(None);
            }
            self.flow.await_chunk(now);
            return Poll::Pending;
        };
        self.next.pop_front();
        self.taken += 1;
        // Chunks of a push are given as fast as they are pushed: the rate of one is the rate of the other.
        self.flow.handle_taken(now, buffer.len());
        match &mut self.direction {
            Direction::Push => self.filling += 1,
            Direction::Pull { handle, verifier } => {
                let verified = verifier.as_mut().map(|verifier| verifier.handle_bytes(&buffer));
                if let Some(Err(mismatch)) = verified {
                    let error = mismatch.into_error(handle);
                    // Chunks that are on their way end unseen.
                    self.close();
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        Poll::Ready(Some(Ok((offset, buffer))))
    }

    /// The owner has filled a chunk. Returns true if the engine is to be asked for attention.
    pub(crate) fn handle_filled(&mut self, offset: u64, buffer: Buffer) -> bool {
        if !self.flow.is_open() {
            return false;
        }
        self.filling -= 1;
        self.filled.push_back((offset, buffer));
        self.flow.ask_for_attention()
    }

    /// The owner has dropped a chunk without filling it. Returns true if this is what ends the transfer.
    pub(crate) fn handle_unfilled(&mut self, offset: u64) -> bool {
        let was_open = self.flow.is_open();
        self.fail(TransferError::Unfilled { offset });
        was_open
    }

    /// The memory of a chunk came back.
    pub(crate) fn handle_returned(&mut self, buffer: Buffer) {
        self.flow.handle_returned(buffer);
    }

    /// The owner wants no more. Returns true if the engine may still work on the transfer.
    pub(crate) fn close(&mut self) -> bool {
        let is_in_progress = self.flow.is_open() && !self.is_finished();
        self.flow.close();
        self.next.clear();
        self.filled.clear();
        is_in_progress
    }

    /// True if nothing more comes for the owner.
    pub(crate) fn is_finished(&self) -> bool {
        if !self.flow.is_open() {
            return self.flow.is_closed();
        }
        let has_none = self.next.is_empty() && self.filled.is_empty() && self.filling + self.pushing == 0;
        has_none && self.flow.is_cut_up()
    }

    /// True if the engine has to look at the transfer, and was not asked to already.
    pub(crate) fn wants_attention(&mut self) -> bool {
        self.wants_chunk() && self.flow.ask_for_attention()
    }

    /// Whom to wake when there is something for the owner.
    pub(crate) fn set_waker(&mut self, waker: task::Waker) {
        self.flow.set_waker(waker);
    }

    pub(crate) fn controller(&self) -> &Controller {
        self.flow.controller()
    }

    fn wants_chunk(&self) -> bool {
        let chunks = self.next.len() + self.filling + self.pushing;
        let depth = self.flow.controller().depth();
        let has_room = match self.direction {
            Direction::Pull { .. } => chunks < depth,
            // One is filled while as many as the depth are on their way.
            Direction::Push => chunks <= depth,
        };
        has_room && !self.flow.is_cut_up()
    }

    fn begin_move(&mut self, offset: u64, buffer: Buffer) -> ChunkMove {
        self.moves += 1;
        ChunkMove {
            sequence: self.moves - 1,
            offset,
            buffer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use ropewalk_fabric::RegionHandle;

    use super::*;
    use crate::Amount;

    fn handle(length: u64) -> BulkHandle {
        BulkHandle::from(RegionHandle {
            address: "tcp://127.0.0.1:4711".parse().unwrap(),
            region: 0,
            token: 0,
            length,
            writable: false,
        })
    }

    proptest! {
        /// In whatever order chunks arrive they are given in order and cover the range once; no more of them
        /// than the depth are in progress or wait, and all memory but a little more than that is used again.
        #[test]
        fn chunks_come_in_order(
            range in (0..1000_u64, 0..1000_u64).prop_map(|(start, length)| start..start + length),
            depth in 1..6_usize,
            chunk in 1..100_usize,
            choices in vec(any::<usize>(), 64),
        ) {
            let pipeline = Pipeline { depth: Amount::Exactly(depth), chunk: Amount::Exactly(chunk) };
            let mut queue = ChunkQueue::pull(&handle(2000), range.clone(), pipeline);
            let mut choices = choices.into_iter().cycle();
            let now = Instant::now();
            let mut at = range.start;
            let mut allocated = 0;
            let mut coming = Vec::new();
            loop {
                coming.extend(std::iter::from_fn(|| queue.next_move(|length| {
                    allocated += 1;
                    Buffer::zeroed(length)
                })));
                prop_assert!(queue.next.len() <= depth);
                match queue.take(now) {
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(taken)) => {
                        let (offset, buffer) = taken.unwrap();
                        prop_assert_eq!(offset, at);
                        at += buffer.len() as u64;
                        queue.handle_returned(buffer);
                    }
                    Poll::Pending => {
                        let choice = choices.next().unwrap();
                        let moved = coming.swap_remove(choice % coming.len());
                        queue.handle_moved(moved.sequence, Some(moved.buffer));
                    }
                }
            }
            prop_assert!(coming.is_empty() && queue.is_finished());
            prop_assert_eq!(at, range.end);
            // The last chunk may have a length of its own.
            prop_assert!(allocated <= depth + 2);
        }

        /// In whatever order chunks are filled and written, they cover the range once and are given in order, no more
        /// are on their way or being filled than the depth and one, and the stream ends when the last was written.
        #[test]
        fn chunks_cover_the_range(
            range in (0..1000_u64, 0..1000_u64).prop_map(|(start, length)| start..start + length),
            depth in 1..6_usize,
            chunk in 1..100_usize,
            choices in vec(any::<usize>(), 64),
        ) {
            let pipeline = Pipeline { depth: Amount::Exactly(depth), chunk: Amount::Exactly(chunk) };
            let mut queue = ChunkQueue::push(range.clone(), pipeline);
            let mut choices = choices.into_iter().cycle();
            let now = Instant::now();
            let mut at = range.start;
            let (mut filling, mut moving) = (Vec::new(), Vec::new());
            let (mut written, mut allocated) = (0, 0);
            loop {
                moving.extend(std::iter::from_fn(|| queue.next_move(|length| {
                    allocated += 1;
                    Buffer::zeroed(length)
                })));
                prop_assert!(filling.len() + moving.len() <= depth + 1);
                let choice = choices.next().unwrap();
                match queue.take(now) {
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(taken)) => {
                        let (offset, buffer) = taken.unwrap();
                        prop_assert_eq!(offset, at);
                        at += buffer.len() as u64;
                        filling.push((offset, buffer));
                    }
                    Poll::Pending if !filling.is_empty() && (choice % 2 == 0 || moving.is_empty()) => {
                        let (offset, buffer) = filling.swap_remove(choice / 2 % filling.len());
                        queue.handle_filled(offset, buffer);
                    }
                    Poll::Pending => {
                        let moved = moving.swap_remove(choice / 2 % moving.len());
                        written += moved.buffer.len() as u64;
                        queue.handle_returned(moved.buffer);
                        queue.handle_moved(moved.sequence, None);
                    }
                }
            }
            prop_assert!(moving.is_empty() && filling.is_empty() && queue.is_over());
            prop_assert_eq!((at, written), (range.end, range.end - range.start));
            // The last chunk may have a length of its own.
            prop_assert!(allocated <= depth + 3);
        }
    }

    /// A failure is told once, and nothing comes after it.
    #[test]
    fn failures_are_the_end() {
        let mut queue = ChunkQueue::pull(&handle(1 << 20), 0..1 << 20, Pipeline::default());
        assert!(queue.take(Instant::now()).is_pending());
        let wanted = queue.next_move(Buffer::zeroed).unwrap();
        queue.fail(TransferError::Stopped);
        queue.handle_moved(wanted.sequence, Some(wanted.buffer));
        assert!(queue.next_move(Buffer::zeroed).is_none() && queue.is_over() && !queue.is_finished());
        let taken = queue.take(Instant::now());
        assert!(matches!(taken, Poll::Ready(Some(Err(TransferError::Stopped)))));
        assert!(matches!(queue.take(Instant::now()), Poll::Ready(None)));
        assert!(queue.is_finished());
    }

    /// A chunk that is dropped unfilled is told once, as any failure, and ends all; chunks that are filled afterwards
    /// go nowhere.
    #[test]
    fn unfilled_chunks_are_failures() {
        let mut queue = ChunkQueue::push(0..1 << 20, Pipeline::default());
        assert!(queue.take(Instant::now()).is_pending());
        assert!(queue.next_move(Buffer::zeroed).is_none(), "nothing is filled");
        let mut take = || match queue.take(Instant::now()) {
            Poll::Ready(Some(Ok(taken))) => taken,
            other => panic!("no chunk was prepared: {other:?}"),
        };
        let ((first, _), (second, buffer)) = (take(), take());
        assert!(queue.handle_unfilled(first));
        assert!(!queue.handle_filled(second, buffer) && queue.next_move(Buffer::zeroed).is_none());
        let taken = queue.take(Instant::now());
        assert!(matches!(
            taken,
            Poll::Ready(Some(Err(TransferError::Unfilled { offset: 0 })))
        ));
        assert!(matches!(queue.take(Instant::now()), Poll::Ready(None)));
        assert!(queue.is_finished() && queue.is_over());
    }
}
