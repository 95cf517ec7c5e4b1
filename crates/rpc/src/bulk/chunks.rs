//! The owner's end of a pipelined transfer: chunks to use or to fill, in order, while others are on their way.

use std::{
    convert, fmt,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Instant,
};

use futures_core::Stream;
use ropewalk_fabric::{Buffer, Waker};

use super::chunk_queue::ChunkQueue;
use crate::{TransferError, lock::lock};

/// A range of a bulk handle that is moved chunk by chunk: a stream of chunks, in order, for any executor, or for a loop
/// over [`next_blocking`](Self::next_blocking). While the owner works on one chunk others are on their way. The engine
/// has to be driven meanwhile. Dropping it cancels what is left.
///
/// The stream ends without an error when all of the range was moved. After an error nothing more comes.
#[must_use = "dropping it cancels the transfer"]
pub struct PipelinedChunks<C> {
    pipe: Arc<Pipe>,
    chunk: fn(Chunk) -> C,
}

/// A pipelined pull: a stream of [`Chunk`]s that have arrived.
pub type PulledChunks = PipelinedChunks<Chunk>;

/// A pipelined push: a stream of [`ChunkToFill`]s. If too many chunks are on their way, the next one has to be waited
/// for.
pub type PushedChunks = PipelinedChunks<ChunkToFill>;

/// Part of what is pulled. Its memory is used again when it is dropped.
pub struct Chunk {
    offset: u64,
    buffer: Buffer,
    pipe: Arc<Pipe>,
}

/// Memory for part of what is pushed. It holds zeros, or what an earlier chunk left there.
///
/// It is sent by [`push`](Self::push); dropped before that, it ends the transfer with
/// [`TransferError::Unfilled`].
#[must_use = "dropping it fails the transfer"]
pub struct ChunkToFill {
    chunk: Chunk,
    is_pushed: bool,
}

/// The name of a pipeline of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PipelineId(pub(crate) u64);

/// The connection between the engine and the owner of a pipelined transfer.
pub(crate) struct Pipe {
    id: PipelineId,
    queue: Mutex<ChunkQueue>,
    attention: Attention,
}

/// The pipelines that want something of the engine: more chunks, or their end. A pipeline that is asked for
/// twice is served once, so there are no more than it has.
#[derive(Clone)]
pub(crate) struct Attention {
    wanted: Arc<Mutex<Vec<PipelineId>>>,
    waker: Waker,
}

impl PulledChunks {
    pub(crate) fn pulled(pipe: Arc<Pipe>) -> Self {
        Self {
            pipe,
            chunk: convert::identity,
        }
    }
}

impl PushedChunks {
    pub(crate) fn pushed(pipe: Arc<Pipe>) -> Self {
        Self {
            pipe,
            chunk: |chunk| ChunkToFill {
                chunk,
                is_pushed: false,
            },
        }
    }
}

impl<C> PipelinedChunks<C> {
    /// The next chunk if it is here, or there is room to fill it; `None` if it is not, or if all were moved: see
    /// [`is_finished`](Self::is_finished).
    ///
    /// # Errors
    /// If the transfer has failed. Nothing more comes then.
    pub fn try_next(&mut self) -> Option<Result<C, TransferError>> {
        match self.take() {
            Poll::Ready(next) => {
                self.pipe.ask_for_chunks();
                next
            }
            Poll::Pending => None,
        }
    }

    /// True if nothing more comes: all was moved, or the transfer has failed and that was told.
    pub fn is_finished(&self) -> bool {
        lock(&self.pipe.queue).is_finished()
    }

    /// How many chunks are wanted to be in progress at once now, and how long the next one is to be.
    pub fn pipeline(&self) -> (usize, usize) {
        let queue = lock(&self.pipe.queue);
        let controller = queue.controller();
        (controller.depth(), controller.chunk())
    }

    /// The name of the pipeline at its engine.
    pub(crate) fn id(&self) -> PipelineId {
        self.pipe.id
    }

    pub(crate) fn take(&self) -> Poll<Option<Result<C, TransferError>>> {
        let taken = lock(&self.pipe.queue).take(Instant::now());
        let chunk = |(offset, buffer)| (self.chunk)(Chunk::new(offset, buffer, &self.pipe));
        taken.map(|next| next.map(|taken| taken.map(chunk)))
    }
}

impl<C> Stream for PipelinedChunks<C> {
    type Item = Result<C, TransferError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut taken = self.take();
        if taken.is_pending() {
            lock(&self.pipe.queue).set_waker(context.waker().clone());
            // It may have arrived in between.
            taken = self.take();
        }
        if taken.is_ready() {
            self.pipe.ask_for_chunks();
        }
        taken
    }
}

impl<C> Drop for PipelinedChunks<C> {
    fn drop(&mut self) {
        let is_in_progress = lock(&self.pipe.queue).close();
        // Otherwise the engine has forgotten it.
        if is_in_progress {
            self.pipe.ask();
        }
    }
}

impl<C> fmt::Debug for PipelinedChunks<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelinedChunks")
            .field("id", &self.pipe.id)
            .finish_non_exhaustive()
    }
}

impl Chunk {
    pub(crate) fn new(offset: u64, buffer: Buffer, pipe: &Arc<Pipe>) -> Self {
        let pipe = pipe.clone();
        Self { offset, buffer, pipe }
    }

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
        let buffer = std::mem::take(&mut self.buffer);
        lock(&self.pipe.queue).handle_returned(buffer);
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

impl ChunkToFill {
    /// Where it goes in what the handle shows.
    pub fn offset(&self) -> u64 {
        self.chunk.offset
    }

    /// Sends it. How that ends is told by the stream that it came from.
    pub fn push(mut self) {
        self.is_pushed = true;
        let buffer = std::mem::take(&mut self.chunk.buffer);
        let pipe = &self.chunk.pipe;
        let asks = lock(&pipe.queue).handle_filled(self.chunk.offset, buffer);
        if asks {
            pipe.ask();
        }
    }
}

impl Deref for ChunkToFill {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.chunk
    }
}

impl DerefMut for ChunkToFill {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.chunk.buffer
    }
}

impl Drop for ChunkToFill {
    fn drop(&mut self) {
        if !self.is_pushed {
            let Chunk { offset, pipe, .. } = &self.chunk;
            let was_open = pipe.update(|queue| queue.handle_unfilled(*offset));
            if was_open {
                pipe.ask();
            }
        }
    }
}

impl fmt::Debug for ChunkToFill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChunkToFill").field(&self.chunk).finish()
    }
}

impl Pipe {
    pub(crate) fn new(id: PipelineId, queue: ChunkQueue, attention: &Attention) -> Self {
        Self {
            id,
            queue: Mutex::new(queue),
            attention: attention.clone(),
        }
    }

    /// Changes the queue, and wakes the owner if there is something for the owner then.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut ChunkQueue) -> T) -> T {
        let (result, waker) = {
            let mut queue = lock(&self.queue);
            (change(&mut queue), queue.take_waker())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Asks the engine to look at the pipeline, if there is room for more chunks.
    fn ask_for_chunks(&self) {
        let wants_attention = lock(&self.queue).wants_attention();
        if wants_attention {
            self.ask();
        }
    }

    fn ask(&self) {
        lock(&self.attention.wanted).push(self.id);
        self.attention.waker.wake();
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
}
