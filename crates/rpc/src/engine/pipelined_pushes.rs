//! What an engine does for pipelined pushes: it finds memory for the chunks that their owners fill, and moves them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, SubmitError};

use super::pipelines::{ChunkId, outside};
use crate::{
    BulkHandle, Engine, Pipeline, PushedChunks, TransferError,
    bulk::{BulkId, Moving, PipelineId, PushQueue, PushWork, sent},
    engine::bulk_transfers::{Outcome, deadline_after},
    lock::lock,
};

pub(super) struct PipelinedPush {
    handle: BulkHandle,
    deadline: Instant,
    /// The chunks on their way, by their numbers.
    chunks: BTreeMap<u64, BulkId>,
    next_chunk: u64,
    queue: Arc<Mutex<PushQueue>>,
}

impl Engine {
    /// Writes a range of what the handle shows chunk by chunk, so that it can be sent while it is made, and with less
    /// memory than all of it takes: the counterpart of [`pull_pipelined`](Self::pull_pipelined). It ends by its
    /// time-out at the latest. If it fails, part of the range may have been written.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ropewalk_rpc::{BulkHandle, Engine, Pipeline, TransferError};
    /// # fn example(engine: &mut Engine, handle: &BulkHandle) -> Result<(), TransferError> {
    /// let timeout = Duration::from_secs(10);
    /// let mut chunks = engine.push_pipelined(handle, 0..handle.len(), Pipeline::default(), timeout)?;
    /// while let Some(chunk) = chunks.next_blocking(engine) {
    ///     let mut chunk = chunk?;
    ///     let offset = chunk.offset();
    ///     for (at, byte) in (offset..).zip(chunk.iter_mut()) {
    ///         *byte = at as u8;
    ///     }
    ///     chunk.push();
    /// }
    /// // All of it was written.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the range is not inside what the handle shows, or may not be written; see [`TransferError::Submit`].
    pub fn push_pipelined(
        &mut self,
        handle: &BulkHandle,
        range: Range<u64>,
        pipeline: Pipeline,
        timeout: Duration,
    ) -> Result<PushedChunks, TransferError> {
        if handle.check(&range).is_err() {
            return Err(outside(handle, &range).into());
        }
        if !range.is_empty() && !handle.is_writable_at(&range) {
            return Err(SubmitError::ReadOnly.into());
        }
        let id = self.pipelines.next_id();
        let queue = Arc::new(Mutex::new(PushQueue::new(range, pipeline)));
        let push = PipelinedPush {
            handle: handle.clone(),
            deadline: deadline_after(timeout),
            chunks: BTreeMap::new(),
            next_chunk: 0,
            queue: queue.clone(),
        };
        self.pipelines.pushes.insert(id, push);
        self.serve_push(id);
        Ok(PushedChunks::new(id, queue, self.pipelines.attention.clone()))
    }

    /// Does what the owner of a pipelined push waits for.
    pub(super) fn serve_push(&mut self, id: PipelineId) {
        loop {
            let Some(push) = self.pipelines.pushes.get_mut(&id) else {
                return;
            };
            let work = lock(&push.queue).next_work();
            match work {
                Some(PushWork::Prepare {
                    offset,
                    length,
                    buffer,
                }) => {
                    let buffer = buffer.unwrap_or_else(|| self.endpoint.allocate(length));
                    let waker = lock(&push.queue).handle_prepared(offset, buffer);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
                Some(PushWork::Push { offset, buffer }) => {
                    let sequence = push.next_chunk;
                    push.next_chunk += 1;
                    let left = push.deadline.saturating_duration_since(Instant::now());
                    let bytes = sent(buffer, &push.queue);
                    let moving = Moving::push(&push.handle, offset, vec![bytes]);
                    let outcome = Outcome::PushedChunk(ChunkId {
                        pipeline: id,
                        sequence,
                    });
                    let started = moving.map_err(TransferError::from);
                    match started.and_then(|moving| self.start_bulk(moving, left, outcome, true)) {
                        Ok(bulk) => {
                            if let Some(push) = self.pipelines.pushes.get_mut(&id) {
                                push.chunks.insert(sequence, bulk);
                            }
                        }
                        Err(error) => return self.fail_push(id, error),
                    }
                }
                None => {
                    let is_over = lock(&push.queue).is_over();
                    if is_over {
                        self.remove_push(id);
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn handle_chunk_pushed(&mut self, chunk: ChunkId, result: Result<(), TransferError>) {
        let Some(push) = self.pipelines.pushes.get_mut(&chunk.pipeline) else {
            return;
        };
        push.chunks.remove(&chunk.sequence);
        match result {
            Ok(()) => {
                let waker = lock(&push.queue).handle_pushed();
                if let Some(waker) = waker {
                    waker.wake();
                }
                self.serve_push(chunk.pipeline);
            }
            Err(error) => self.fail_push(chunk.pipeline, error),
        }
    }

    /// Ends the pushes whose time is over: of those whose owner does not fill what he has nothing is on its way that
    /// could end. Returns how many.
    pub(super) fn end_overdue_pushes(&mut self, now: Instant) -> usize {
        let pushes = self.pipelines.pushes.iter();
        let overdue: Vec<_> = pushes
            .filter(|(_, push)| push.deadline <= now)
            .map(|(&id, push)| (id, push.peer()))
            .collect();
        let count = overdue.len();
        for (id, peer) in overdue {
            self.fail_push(id, TransferError::TimedOut { peer });
        }
        count
    }

    fn fail_push(&mut self, id: PipelineId, error: TransferError) {
        if let Some(push) = self.remove_push(id) {
            push.fail(error);
        }
    }

    /// Takes a push out of all tables and cancels its chunks.
    fn remove_push(&mut self, id: PipelineId) -> Option<PipelinedPush> {
        let push = self.pipelines.pushes.remove(&id)?;
        for &bulk in push.chunks.values() {
            self.cancel_bulk(bulk);
        }
        Some(push)
    }
}

impl PipelinedPush {
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn fail(self, error: TransferError) {
        let waker = lock(&self.queue).fail(error);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The first that it is for.
    fn peer(&self) -> Address {
        let first = self.handle.segments().next();
        let first = first.expect("a push of no bytes is over when it begins");
        first.region.address.clone()
    }
}
