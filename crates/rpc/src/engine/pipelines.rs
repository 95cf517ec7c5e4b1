//! What an engine does for pipelined transfers: it asks for chunks as their owners take them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Buffer, SubmitError, Waker};

use super::pipelined_pushes::PipelinedPush;
use crate::{
    BulkHandle, Engine, Pipeline, PulledChunks, TransferError,
    bulk::{Attention, BulkId, ChunkQueue, Moving, PipelineId},
    engine::bulk_transfers::{Outcome, deadline_after},
    lock::lock,
};

/// The pipelined transfers in progress.
pub(super) struct Pipelines {
    pipelines: BTreeMap<PipelineId, PipelinedPull>,
    pub(super) pushes: BTreeMap<PipelineId, PipelinedPush>,
    pub(super) attention: Attention,
    next: u64,
}

struct PipelinedPull {
    handle: BulkHandle,
    deadline: Instant,
    /// The chunks in progress, by their numbers.
    chunks: BTreeMap<u64, BulkId>,
    queue: Arc<Mutex<ChunkQueue>>,
}

/// A chunk of a pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkId {
    pub(super) pipeline: PipelineId,
    pub(super) sequence: u64,
}

impl Engine {
    /// Pulls a range of what the handle shows chunk by chunk, so that it can be worked on while it comes, and
    /// with less memory than all of it takes (Mercury, section IV-A). It ends by its time-out at the latest.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ropewalk_rpc::{BulkHandle, Engine, Pipeline, TransferError};
    /// # fn example(engine: &mut Engine, handle: &BulkHandle) -> Result<u64, TransferError> {
    /// let mut sum = 0;
    /// let timeout = Duration::from_secs(10);
    /// let mut chunks = engine.pull_pipelined(handle, 0..handle.len(), Pipeline::default(), timeout)?;
    /// while let Some(chunk) = chunks.next_blocking(engine) {
    ///     sum += chunk?.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    /// }
    /// # Ok(sum)
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn pull_pipelined(
        &mut self,
        handle: &BulkHandle,
        range: Range<u64>,
        pipeline: Pipeline,
        timeout: Duration,
    ) -> Result<PulledChunks, TransferError> {
        if handle.check(&range).is_err() {
            return Err(outside(handle, &range).into());
        }
        let id = self.pipelines.next_id();
        let queue = Arc::new(Mutex::new(ChunkQueue::new(handle, range, pipeline)));
        let pull = PipelinedPull {
            handle: handle.clone(),
            deadline: deadline_after(timeout),
            chunks: BTreeMap::new(),
            queue: queue.clone(),
        };
        self.pipelines.pipelines.insert(id, pull);
        if let Err(error) = self.start_chunks(id) {
            self.remove_pipeline(id);
            return Err(error);
        }
        Ok(PulledChunks::new(id, queue, self.pipelines.attention.clone()))
    }

    /// Does what the owner of a pipeline waits for.
    pub(crate) fn serve_pipeline(&mut self, id: PipelineId) {
        if self.pipelines.pushes.contains_key(&id) {
            return self.serve_push(id);
        }
        if let Err(error) = self.start_chunks(id) {
            self.fail_pipeline(id, error);
        }
    }

    /// Serves the pipelines that asked for it; returns how many.
    pub(super) fn progress_pipelines(&mut self) -> usize {
        if self.pipelines.len() == 0 {
            return 0;
        }
        let asked = self.pipelines.attention.take();
        for &id in &asked {
            self.serve_pipeline(id);
        }
        let now = self.now();
        asked.len() + self.end_overdue_pushes(now)
    }

    pub(super) fn handle_chunk(&mut self, chunk: ChunkId, result: Result<Buffer, TransferError>) {
        let Some(pull) = self.pipelines.pipelines.get_mut(&chunk.pipeline) else {
            return;
        };
        pull.chunks.remove(&chunk.sequence);
        match result {
            Ok(buffer) => {
                let (waker, is_last) = {
                    let mut queue = lock(&pull.queue);
                    let waker = queue.handle_arrived(chunk.sequence, buffer);
                    (waker, pull.chunks.is_empty() && queue.has_asked_for_all())
                };
                if is_last {
                    self.pipelines.pipelines.remove(&chunk.pipeline);
                }
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            Err(error) => self.fail_pipeline(chunk.pipeline, error),
        }
    }

    /// Asks for all chunks that should be in progress.
    fn start_chunks(&mut self, id: PipelineId) -> Result<(), TransferError> {
        loop {
            let Some(pull) = self.pipelines.pipelines.get_mut(&id) else {
                return Ok(());
            };
            let wanted = lock(&pull.queue).next_chunk();
            let Some(wanted) = wanted else {
                let is_over = {
                    let queue = lock(&pull.queue);
                    queue.is_closed() || (queue.has_asked_for_all() && pull.chunks.is_empty())
                };
                if is_over {
                    self.remove_pipeline(id);
                }
                return Ok(());
            };
            let buffer = wanted
                .buffer
                .unwrap_or_else(|| self.endpoint.allocate(wanted.length));
            let left = pull.deadline.saturating_duration_since(Instant::now());
            let started =
                Moving::pull(&pull.handle, wanted.offset, vec![buffer]).map_err(TransferError::from);
            let outcome = Outcome::Chunk(ChunkId {
                pipeline: id,
                sequence: wanted.sequence,
            });
            let may_wait = wanted.sequence > 0;
            let bulk = started.and_then(|moving| self.start_bulk(moving, left, outcome, may_wait))?;
            if let Some(pull) = self.pipelines.pipelines.get_mut(&id) {
                pull.chunks.insert(wanted.sequence, bulk);
            }
        }
    }

    fn fail_pipeline(&mut self, id: PipelineId, error: TransferError) {
        if let Some(pull) = self.remove_pipeline(id) {
            let waker = lock(&pull.queue).fail(error);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Takes a pipeline out of all tables and cancels its chunks.
    fn remove_pipeline(&mut self, id: PipelineId) -> Option<PipelinedPull> {
        let pull = self.pipelines.pipelines.remove(&id)?;
        for &bulk in pull.chunks.values() {
            self.cancel_bulk(bulk);
        }
        Some(pull)
    }
}

impl Pipelines {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            pipelines: BTreeMap::new(),
            pushes: BTreeMap::new(),
            attention: Attention::new(waker),
            next: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> PipelineId {
        self.next += 1;
        PipelineId(self.next - 1)
    }

    /// When a push ends of which nothing may be on its way; of what is pulled something always is.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.pushes.values().map(PipelinedPush::deadline).min()
    }

    /// How many are in progress.
    pub(super) fn len(&self) -> usize {
        self.pipelines.len() + self.pushes.len()
    }

    /// The engine is gone: whoever waits is told.
    pub(super) fn stop(&mut self) {
        for pull in std::mem::take(&mut self.pipelines).into_values() {
            let waker = lock(&pull.queue).fail(TransferError::Stopped);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        for push in std::mem::take(&mut self.pushes).into_values() {
            push.fail(TransferError::Stopped);
        }
    }
}

/// The error that says by how much a range is not inside what the handle shows.
pub(super) fn outside(handle: &BulkHandle, range: &Range<u64>) -> SubmitError {
    SubmitError::OutOfRange {
        offset: range.start,
        length: range.end.saturating_sub(range.start),
        region_length: handle.len(),
    }
}
