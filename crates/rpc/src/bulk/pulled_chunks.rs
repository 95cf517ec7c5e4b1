//! What the owner of a pipelined transfer holds: chunks, in order, while others are on their way.

use std::{
    collections::VecDeque,
    fmt,
    ops::{Deref, Range},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{self, Context, Poll},
    time::{Duration, Instant},
};

use futures_core::Stream;
use ropewalk_fabric::{Buffer, Waker};

use crate::{
    BulkHandle, Engine, TransferError,
    bulk::{
        checksum::Verifier,
        flow::{Flow, NextChunk},
        pipeline::Pipeline,
    },
    lock::lock,
};

/// A range of a bulk handle that is pulled chunk by chunk: a stream of [`Chunk`]s, in order, for any executor, or
/// for a loop over [`next_blocking`](Self::next_blocking). While one is worked on the next ones come. The
/// engine has to be driven meanwhile. Dropping it cancels what is left.
///
/// After an error nothing more comes.
#[must_use = "dropping it cancels the transfer"]
pub struct PulledChunks {
    id: PipelineId,
    queue: Arc<Mutex<ChunkQueue>>,
    attention: Attention,
}

/// Part of what is pulled. Its memory is used again when it is dropped.
pub struct Chunk {
    offset: u64,
    buffer: Buffer,
    queue: Arc<Mutex<ChunkQueue>>,
}

/// The name of a pipeline of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipelineId(pub(crate) u64);

/// The pipelines that want something of the engine: more chunks, or their end. A pipeline that is asked for
/// twice is served once, so there are no more than it has.
#[derive(Clone)]
pub(crate) struct Attention {
    wanted: Arc<Mutex<Vec<PipelineId>>>,
    waker: Waker,
}

/// The chunks of one pipeline, shared by the engine that asks for them and the owner who takes them.
///
/// The engine asks for what [`next_chunk`](Self::next_chunk) gives and tells what came of it by
/// [`handle_arrived`](Self::handle_arrived) or [`fail`](Self::fail); the owner calls [`take`](Self::take).
pub(crate) struct ChunkQueue {
    /// In order; one that has not arrived has no buffer yet.
    chunks: VecDeque<(u64, Option<Buffer>)>,
    /// The number of the first of them.
    first: u64,
    /// What was not asked for yet.
    flow: Flow,
    verifier: Option<Verifier>,
    handle: BulkHandle,
}

/// A chunk to be asked for.
pub(crate) struct WantedChunk {
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    /// Memory for it, if there is some.
    pub(crate) buffer: Option<Buffer>,
}

impl PulledChunks {
    pub(crate) fn new(id: PipelineId, queue: Arc<Mutex<ChunkQueue>>, attention: Attention) -> Self {
        Self { id, queue, attention }
    }

    /// Drives the engine, which must be the one that pulls, until the next chunk is here, and takes it; `None`
    /// at the end.
    ///
    /// # Errors
    /// If the transfer has failed. Nothing more comes then.
    ///
    /// # Panics
    /// If it is called by a handler.
    pub fn next_blocking(&mut self, engine: &mut Engine) -> Option<Result<Chunk, TransferError>> {
        loop {
            if let Poll::Ready(next) = self.take() {
                // Without waking anybody: who would be is here.
                engine.serve_pipeline(self.id);
                return next;
            }
            engine.wait(Duration::from_secs(1));
        }
    }

    /// The next chunk if it is here; `None` if it is not, or if there is none.
    ///
    /// # Errors
    /// If the transfer has failed. Nothing more comes then.
    pub fn try_next(&mut self) -> Option<Result<Chunk, TransferError>> {
        match self.take() {
            Poll::Ready(next) => {
                self.attention.ask(self.id, &self.queue);
                next
            }
            Poll::Pending => None,
        }
    }

    /// Whether nothing more comes.
    pub fn is_finished(&self) -> bool {
        lock(&self.queue).is_finished()
    }

    /// How many chunks are wanted to be in progress at once now, and how long the next one is to be.
    pub fn pipeline(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        let controller = queue.flow.controller();
        (controller.depth(), controller.chunk())
    }

    fn take(&self) -> Poll<Option<Result<Chunk, TransferError>>> {
        let taken = lock(&self.queue).take(Instant::now());
        taken.map(|next| {
            next.map(|chunk| {
                chunk.map(|(offset, buffer)| Chunk {
                    offset,
                    buffer,
                    queue: self.queue.clone(),
                })
            })
        })
    }
}

impl Stream for PulledChunks {
    type Item = Result<Chunk, TransferError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut taken = self.take();
        if taken.is_pending() {
            lock(&self.queue).flow.set_waker(context.waker().clone());
            // It may have arrived in between.
            taken = self.take();
        }
        if taken.is_ready() {
            self.attention.ask(self.id, &self.queue);
        }
        taken
    }
}

impl Drop for PulledChunks {
    fn drop(&mut self) {
        let is_in_progress = lock(&self.queue).close();
        // Otherwise the engine has forgotten it.
        if is_in_progress {
            self.attention.push(self.id);
        }
    }
}

impl fmt::Debug for PulledChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PulledChunks")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Chunk {
    /// Where it lies in what the handle shows.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its memory, which then is not used again.
    pub fn into_buffer(mut self) -> Buffer {
        std::mem::take(&mut self.buffer)
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        lock(&self.queue)
            .flow
            .handle_returned(std::mem::take(&mut self.buffer));
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("offset", &self.offset)
            .field("length", &self.buffer.len())
            .finish_non_exhaustive()
    }
}

impl Attention {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            wanted: Arc::default(),
            waker,
        }
    }

    /// Those that asked.
    pub(crate) fn take(&self) -> Vec<PipelineId> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// Asks the engine to look at a pipeline, if it has something to do for it.
    fn ask(&self, id: PipelineId, queue: &Mutex<ChunkQueue>) {
        if lock(queue).wants_attention() {
            self.push(id);
        }
    }

    pub(crate) fn push(&self, id: PipelineId) {
        lock(&self.wanted).push(id);
        self.waker.wake();
    }
}

impl ChunkQueue {
    /// For this range, which is inside what the handle shows.
    pub(crate) fn new(handle: &BulkHandle, range: Range<u64>, pipeline: Pipeline) -> Self {
        Self {
            chunks: VecDeque::new(),
            first: 0,
            verifier: Verifier::new(handle, range.clone()),
            flow: Flow::new(range, pipeline),
            handle: handle.clone(),
        }
    }

    /// The next chunk to ask for, if more should be in progress.
    pub(crate) fn next_chunk(&mut self) -> Option<WantedChunk> {
        self.flow.attend();
        if !self.wants_chunk() {
            return None;
        }
        let NextChunk {
            offset,
            length,
            buffer,
        } = self.flow.cut()?;
        let sequence = self.first + self.chunks.len() as u64;
        self.chunks.push_back((offset, None));
        Some(WantedChunk {
            sequence,
            offset,
            length,
            buffer,
        })
    }

    /// A chunk came. The waker is to be woken.
    pub(crate) fn handle_arrived(&mut self, sequence: u64, buffer: Buffer) -> Option<task::Waker> {
        let at = sequence.checked_sub(self.first)?;
        let (_, arrived) = self.chunks.get_mut(usize::try_from(at).ok()?)?;
        *arrived = Some(buffer);
        if at == 0 { self.flow.take_waker() } else { None }
    }

    /// The transfer failed. The waker is to be woken.
    pub(crate) fn fail(&mut self, error: TransferError) -> Option<task::Waker> {
        self.flow.fail(error)
    }

    /// Whether all was asked for, or is not wanted any longer.
    pub(crate) fn has_asked_for_all(&self) -> bool {
        self.flow.is_cut_up()
    }

    /// Whether the owner wants no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.flow.is_closed()
    }

    /// What comes next for the owner, if it is here.
    fn take(&mut self, now: Instant) -> Poll<Option<Result<(u64, Buffer), TransferError>>> {
        if let Some(end) = self.flow.take_end() {
            return Poll::Ready(end.map(Err));
        }
        let Some((offset, arrived)) = self.chunks.front_mut() else {
            if self.flow.is_cut_up() {
                return Poll::Ready(None);
            }
            self.flow.await_chunk(now);
            return Poll::Pending;
        };
        let Some(buffer) = arrived.take() else {
            self.flow.await_chunk(now);
            return Poll::Pending;
        };
        let offset = *offset;
        self.chunks.pop_front();
        self.first += 1;
        self.flow.handle_taken(now, buffer.len());
        let verified = self
            .verifier
            .as_mut()
            .map(|verifier| verifier.handle_bytes(&buffer));
        if let Some(Err(mismatch)) = verified {
            // What is left is cancelled when the owner is dropped, or ends unseen.
            self.close();
            return Poll::Ready(Some(Err(mismatch.into_error(&self.handle))));
        }
        Poll::Ready(Some(Ok((offset, buffer))))
    }

    /// Ends it. Returns whether the engine still works on it.
    fn close(&mut self) -> bool {
        let is_coming = self.chunks.iter().any(|(_, arrived)| arrived.is_none());
        let is_in_progress = self.flow.is_open() && (is_coming || !self.flow.is_cut_up());
        self.flow.close();
        self.chunks.clear();
        is_in_progress
    }

    fn is_finished(&self) -> bool {
        match self.flow.is_open() {
            true => self.chunks.is_empty() && self.flow.is_cut_up(),
            false => self.flow.is_closed(),
        }
    }

    fn wants_chunk(&self) -> bool {
        !self.flow.is_cut_up() && self.chunks.len() < self.flow.controller().depth()
    }

    /// Whether the engine has to look at it, and was not asked to already.
    fn wants_attention(&mut self) -> bool {
        self.wants_chunk() && self.flow.ask_for_attention()
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
            choices in vec((any::<usize>(), any::<bool>()), 64),
        ) {
            let pipeline = Pipeline { depth: Amount::Exactly(depth), chunk: Amount::Exactly(chunk) };
            let mut queue = ChunkQueue::new(&handle(2000), range.clone(), pipeline);
            let mut choices = choices.into_iter().cycle();
            let now = Instant::now();
            let mut at = range.start;
            let mut allocated = 0;
            let mut coming = Vec::new();
            loop {
                while let Some(wanted) = queue.next_chunk() {
                    allocated += usize::from(wanted.buffer.is_none());
                    coming.push((wanted.sequence, wanted.buffer.unwrap_or_else(|| Buffer::zeroed(wanted.length))));
                }
                prop_assert!(queue.chunks.len() <= depth);
                match queue.take(now) {
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(taken)) => {
                        let (offset, buffer) = taken.unwrap();
                        prop_assert_eq!(offset, at);
                        at += buffer.len() as u64;
                        queue.flow.handle_returned(buffer);
                    }
                    Poll::Pending => {
                        let (choice, _) = choices.next().unwrap();
                        let (sequence, buffer) = coming.swap_remove(choice % coming.len());
                        queue.handle_arrived(sequence, buffer);
                    }
                }
            }
            prop_assert!(coming.is_empty() && queue.is_finished());
            prop_assert_eq!(at, range.end);
            // The last chunk may have a length of its own.
            prop_assert!(allocated <= depth + 2);
        }
    }

    /// A failure is told once, and nothing comes after it; one who has closed is told nothing.
    #[test]
    fn failures_are_the_end() {
        let mut queue = ChunkQueue::new(&handle(1 << 20), 0..1 << 20, Pipeline::default());
        assert!(queue.take(Instant::now()).is_pending());
        let wanted = queue.next_chunk().unwrap();
        queue.fail(TransferError::Stopped);
        queue.handle_arrived(wanted.sequence, Buffer::zeroed(wanted.length));
        assert!(queue.next_chunk().is_none() && queue.has_asked_for_all() && !queue.is_finished());
        let taken = queue.take(Instant::now());
        assert!(matches!(taken, Poll::Ready(Some(Err(TransferError::Stopped)))));
        assert!(matches!(queue.take(Instant::now()), Poll::Ready(None)));
        assert!(queue.is_finished());
    }
}
