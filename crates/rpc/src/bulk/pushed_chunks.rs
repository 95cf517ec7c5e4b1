//! What the owner of a pipelined push holds: memory to fill, chunk by chunk, while earlier chunks are on their way.

use std::{
    collections::VecDeque,
    fmt,
    ops::{Deref, DerefMut, Range},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{self, Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_core::Stream;
use ropewalk_fabric::Buffer;

use super::{
    flow::{Flow, NextChunk},
    pipeline::Pipeline,
    pulled_chunks::{Attention, PipelineId},
};
use crate::{Engine, TransferError, lock::lock};

/// A range of a bulk handle that is written chunk by chunk: a stream of [`ChunkToFill`]s, in order, for any executor,
/// or for a loop over [`next_blocking`](Self::next_blocking). While one is filled the ones before it are on their
/// way; if too many are, the next one has to be waited for. The engine has to be driven meanwhile. Dropping it
/// cancels what is left.
///
/// The stream ends without an error when all of the range was written. After an error nothing more comes.
#[must_use = "dropping it cancels the transfer"]
pub struct PushedChunks {
    id: PipelineId,
    queue: Arc<Mutex<PushQueue>>,
    attention: Attention,
}

/// Memory for part of what is pushed. It holds zeros, or what an earlier chunk left there.
///
/// It is sent by [`push`](Self::push); dropped before that, it ends the transfer with
/// [`TransferError::Unfilled`].
#[must_use = "dropping it fails the transfer"]
pub struct ChunkToFill {
    id: PipelineId,
    offset: u64,
    buffer: Option<Buffer>,
    queue: Arc<Mutex<PushQueue>>,
    attention: Attention,
}

/// The chunks of one pipelined push, shared by the engine that moves them and the owner who fills them.
///
/// The engine does what [`next_work`](Self::next_work) says and tells what came of it by
/// [`handle_prepared`](Self::handle_prepared), [`handle_pushed`](Self::handle_pushed) or [`fail`](Self::fail).
pub(crate) struct PushQueue {
    /// Memory for the next chunks, in order.
    empty: VecDeque<(u64, Buffer)>,
    /// How many the owner has.
    filling: usize,
    /// Those filled that the engine has not taken yet.
    filled: VecDeque<(u64, Buffer)>,
    moving: usize,
    /// What there is no memory for yet.
    flow: Flow,
}

/// What the engine is to do for a pipelined push.
pub(crate) enum PushWork {
    /// Find memory for a chunk that begins here; this, if there is some.
    Prepare {
        offset: u64,
        length: usize,
        buffer: Option<Buffer>,
    },
    /// Move a chunk to where it begins.
    Push { offset: u64, buffer: Buffer },
}

/// The memory of a chunk on its way, which is used again when nobody needs it any longer.
struct Sent {
    buffer: Buffer,
    queue: Arc<Mutex<PushQueue>>,
}

impl PushedChunks {
    pub(crate) fn new(id: PipelineId, queue: Arc<Mutex<PushQueue>>, attention: Attention) -> Self {
        Self { id, queue, attention }
    }

    /// Drives the engine, which must be the one that pushes, until there is room for the next chunk, and gives the
    /// memory for it; `None` when all were written.
    ///
    /// # Errors
    /// If the transfer has failed. Nothing more comes then.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn next_blocking(&mut self, engine: &mut Engine) -> Option<Result<ChunkToFill, TransferError>> {
        loop {
            // Without waking anybody: who would be is here.
            engine.serve_pipeline(self.id);
            if let Poll::Ready(next) = self.take() {
                return next;
            }
            engine.wait(Duration::from_secs(1));
        }
    }

    /// Memory for the next chunk if there is room for it; `None` if there is not, or if all were written: see
    /// [`is_finished`](Self::is_finished).
    ///
    /// # Errors
    /// If the transfer has failed. Nothing more comes then.
    pub fn try_next(&mut self) -> Option<Result<ChunkToFill, TransferError>> {
        match self.take() {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// Whether all was written, or the transfer has failed and that was told.
    pub fn is_finished(&self) -> bool {
        lock(&self.queue).is_finished()
    }

    /// How many chunks are wanted to be on their way at once now, and how long the next one is to be.
    pub fn pipeline(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        let controller = queue.flow.controller();
        (controller.depth(), controller.chunk())
    }

    fn take(&self) -> Poll<Option<Result<ChunkToFill, TransferError>>> {
        let taken = lock(&self.queue).take(Instant::now());
        taken.map(|next| {
            next.map(|chunk| {
                chunk.map(|(offset, buffer)| ChunkToFill {
                    id: self.id,
                    offset,
                    buffer: Some(buffer),
                    queue: self.queue.clone(),
                    attention: self.attention.clone(),
                })
            })
        })
    }
}

impl Stream for PushedChunks {
    type Item = Result<ChunkToFill, TransferError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let taken = self.take();
        if taken.is_ready() {
            return taken;
        }
        lock(&self.queue).flow.set_waker(context.waker().clone());
        // There may be one since.
        self.take()
    }
}

impl Drop for PushedChunks {
    fn drop(&mut self) {
        let is_in_progress = lock(&self.queue).close();
        // Otherwise the engine has forgotten it.
        if is_in_progress {
            self.attention.push(self.id);
        }
    }
}

impl fmt::Debug for PushedChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushedChunks")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ChunkToFill {
    /// Where it goes in what the handle shows.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Sends it. How that ends is told by the stream that it came from.
    pub fn push(mut self) {
        if let Some(buffer) = self.buffer.take() {
            let asks = lock(&self.queue).handle_filled(self.offset, buffer);
            if asks {
                self.attention.push(self.id);
            }
        }
    }
}

impl Deref for ChunkToFill {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for ChunkToFill {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for ChunkToFill {
    fn drop(&mut self) {
        if self.buffer.is_some() {
            let offset = self.offset;
            let (was_open, waker) = lock(&self.queue).handle_unfilled(offset);
            if was_open {
                self.attention.push(self.id);
            }
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl fmt::Debug for ChunkToFill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkToFill")
            .field("offset", &self.offset)
            .field("length", &self.len())
            .finish_non_exhaustive()
    }
}

/// The bytes of a chunk, whose memory goes back to its queue when the last of them is dropped.
pub(crate) fn sent(buffer: Buffer, queue: &Arc<Mutex<PushQueue>>) -> Bytes {
    let queue = queue.clone();
    Bytes::from_owner(Sent { buffer, queue })
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        lock(&self.queue)
            .flow
            .handle_returned(std::mem::take(&mut self.buffer));
    }
}

impl PushQueue {
    /// For a range of this pipeline.
    pub(crate) fn new(range: Range<u64>, pipeline: Pipeline) -> Self {
        Self {
            empty: VecDeque::new(),
            filling: 0,
            filled: VecDeque::new(),
            moving: 0,
            flow: Flow::new(range, pipeline),
        }
    }

    /// What the engine is to do next.
    pub(crate) fn next_work(&mut self) -> Option<PushWork> {
        self.flow.attend();
        if let Some((offset, buffer)) = self.filled.pop_front() {
            self.moving += 1;
            return Some(PushWork::Push { offset, buffer });
        }
        // One is filled while as many as the depth are on their way.
        let chunks = self.empty.len() + self.filling + self.moving;
        if chunks > self.flow.controller().depth() {
            return None;
        }
        let NextChunk {
            offset,
            length,
            buffer,
        } = self.flow.cut()?;
        Some(PushWork::Prepare {
            offset,
            length,
            buffer,
        })
    }

    /// There is memory for a chunk. The waker is to be woken.
    pub(crate) fn handle_prepared(&mut self, offset: u64, buffer: Buffer) -> Option<task::Waker> {
        self.empty.push_back((offset, buffer));
        self.flow.take_waker()
    }

    /// A chunk was written. The waker is to be woken.
    pub(crate) fn handle_pushed(&mut self) -> Option<task::Waker> {
        self.moving -= 1;
        if self.is_finished() {
            self.flow.take_waker()
        } else {
            None
        }
    }

    /// The transfer failed. The waker is to be woken.
    pub(crate) fn fail(&mut self, error: TransferError) -> Option<task::Waker> {
        self.forget();
        self.flow.fail(error)
    }

    /// Whether nothing is left to do for the engine.
    pub(crate) fn is_over(&self) -> bool {
        !self.flow.is_open() || self.is_finished()
    }

    /// What comes next for the owner.
    fn take(&mut self, now: Instant) -> Poll<Option<Result<(u64, Buffer), TransferError>>> {
        if let Some(end) = self.flow.take_end() {
            return Poll::Ready(end.map(Err));
        }
        if let Some((offset, buffer)) = self.empty.pop_front() {
            self.filling += 1;
            // They are given as fast as they are pushed: the rate of one is that of the other.
            self.flow.handle_taken(now, buffer.len());
            return Poll::Ready(Some(Ok((offset, buffer))));
        }
        if self.is_finished() {
            return Poll::Ready(None);
        }
        self.flow.await_chunk(now);
        Poll::Pending
    }

    /// The owner has filled a chunk. Returns whether the engine is to be asked for attention.
    fn handle_filled(&mut self, offset: u64, buffer: Buffer) -> bool {
        if !self.flow.is_open() {
            return false;
        }
        self.filling -= 1;
        self.filled.push_back((offset, buffer));
        self.flow.ask_for_attention()
    }

    /// The owner has dropped a chunk without filling it. Returns whether that is what ends the transfer, and the waker
    /// to wake.
    fn handle_unfilled(&mut self, offset: u64) -> (bool, Option<task::Waker>) {
        let was_open = self.flow.is_open();
        (was_open, self.fail(TransferError::Unfilled { offset }))
    }

    /// Ends it. Returns whether the engine still works on it.
    fn close(&mut self) -> bool {
        let is_in_progress = self.flow.is_open() && !self.is_finished();
        self.flow.close();
        self.forget();
        is_in_progress
    }

    fn forget(&mut self) {
        self.empty.clear();
        self.filled.clear();
    }

    fn is_finished(&self) -> bool {
        let has_none = self.empty.is_empty() && self.filled.is_empty() && self.filling + self.moving == 0;
        match self.flow.is_open() {
            true => has_none && self.flow.is_cut_up(),
            false => self.flow.is_closed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::Amount;

    proptest! {
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
            let mut queue = PushQueue::new(range.clone(), pipeline);
            let mut choices = choices.into_iter().cycle();
            let now = Instant::now();
            let mut at = range.start;
            let (mut filling, mut moving) = (Vec::new(), Vec::new());
            let (mut written, mut allocated) = (0, 0);
            loop {
                while let Some(work) = queue.next_work() {
                    match work {
                        PushWork::Prepare { offset, length, buffer } => {
                            allocated += usize::from(buffer.is_none());
                            queue.handle_prepared(offset, buffer.unwrap_or_else(|| Buffer::zeroed(length)));
                        }
                        PushWork::Push { buffer, .. } => moving.push(buffer),
                    }
                }
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
                        let buffer = moving.swap_remove(choice / 2 % moving.len());
                        written += buffer.len() as u64;
                        queue.flow.handle_returned(buffer);
                        queue.handle_pushed();
                    }
                }
            }
            prop_assert!(moving.is_empty() && filling.is_empty() && queue.is_over());
            prop_assert_eq!((at, written), (range.end, range.end - range.start));
            // The last chunk may have a length of its own.
            prop_assert!(allocated <= depth + 3);
        }
    }

    /// A chunk that is dropped unfilled, as any failure, is told once and ends all; chunks that are filled afterwards
    /// go nowhere.
    #[test]
    fn failures_are_the_end() {
        let mut queue = PushQueue::new(0..1 << 20, Pipeline::default());
        assert!(queue.take(Instant::now()).is_pending());
        for _ in 0..2 {
            let Some(PushWork::Prepare { offset, length, .. }) = queue.next_work() else {
                panic!("there is room for chunks");
            };
            queue.handle_prepared(offset, Buffer::zeroed(length));
        }
        let Poll::Ready(Some(Ok((first, _)))) = queue.take(Instant::now()) else {
            panic!("a chunk was prepared");
        };
        let Poll::Ready(Some(Ok((second, buffer)))) = queue.take(Instant::now()) else {
            panic!("two chunks were prepared");
        };
        assert!(queue.handle_unfilled(first).0);
        assert!(!queue.handle_filled(second, buffer) && queue.next_work().is_none());
        let taken = queue.take(Instant::now());
        assert!(matches!(
            taken,
            Poll::Ready(Some(Err(TransferError::Unfilled { offset: 0 })))
        ));
        assert!(matches!(queue.take(Instant::now()), Poll::Ready(None)));
        assert!(queue.is_finished() && queue.is_over());
    }
}
