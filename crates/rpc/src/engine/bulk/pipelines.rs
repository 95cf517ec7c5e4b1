//! Pipelined transfers: the chunks of each are moved as the owner takes or fills them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{Buffer, SubmitError, Waker};

use super::{
    Bulk,
    transfers::{Outcome, deadline_after},
};
use crate::{
    BulkHandle, Pipeline, PulledChunks, PushedChunks, TransferError,
    bulk::{Attention, BulkId, Chunk, ChunkMove, ChunkQueue, Moving, Pipe, PipelineId},
    engine::ground::Ground,
};

/// The pipelined transfers in progress.
pub(super) struct Pipelines {
    pipelines: BTreeMap<PipelineId, Pipelined>,
    attention: Attention,
    next: u64,
}

struct Pipelined {
    handle: BulkHandle,
    /// Where the range begins in what the handle shows.
    start: u64,
    is_push: bool,
    deadline: Instant,
    /// The moves in progress, by their numbers.
    moves: BTreeMap<u64, BulkId>,
    pipe: Arc<Pipe>,
}

/// A chunk of a pipeline that is moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkId {
    pipeline: PipelineId,
    sequence: u64,
}

impl Bulk {
    /// Pulls a range of what the handle shows chunk by chunk.
    pub(in crate::engine) fn pull_pipelined(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        range: Range<u64>,
        pipeline: Pipeline,
        timeout: Duration,
    ) -> Result<PulledChunks, TransferError> {
        let range = inside(handle, range)?;
        let queue = ChunkQueue::pull(handle, range.clone(), pipeline);
        let pipe = self.begin_pipeline(ground, handle, range.start, false, timeout, queue)?;
        Ok(PulledChunks::pulled(pipe))
    }

    /// Writes a range of what the handle shows chunk by chunk.
    pub(in crate::engine) fn push_pipelined(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        range: Range<u64>,
        pipeline: Pipeline,
        timeout: Duration,
    ) -> Result<PushedChunks, TransferError> {
        let range = inside(handle, range)?;
        if !range.is_empty() && !handle.is_writable_at(&range) {
            return Err(SubmitError::ReadOnly.into());
        }
        let queue = ChunkQueue::push(range.clone(), pipeline);
        let pipe = self.begin_pipeline(ground, handle, range.start, true, timeout, queue)?;
        Ok(PushedChunks::pushed(pipe))
    }

    fn begin_pipeline(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        start: u64,
        is_push: bool,
        timeout: Duration,
        queue: ChunkQueue,
    ) -> Result<Arc<Pipe>, TransferError> {
        let id = self.pipelines.next_id();
        let pipe = Arc::new(Pipe::new(id, queue, &self.pipelines.attention));
        let pipelined = Pipelined {
            handle: handle.clone(),
            start,
            is_push,
            deadline: deadline_after(timeout),
            moves: BTreeMap::new(),
            pipe: pipe.clone(),
        };
        self.pipelines.pipelines.insert(id, pipelined);
        if let Err(error) = self.start_moves(ground, id) {
            self.remove_pipeline(ground, id);
            return Err(error);
        }
        Ok(pipe)
    }

    /// Does what the owner of a pipeline waits for.
    pub(in crate::engine) fn serve_pipeline(&mut self, ground: &mut Ground, id: PipelineId) {
        if let Err(error) = self.start_moves(ground, id) {
            self.fail_pipeline(ground, id, error);
        }
    }

    /// Serves the pipelines that asked for it, and ends those whose time is over; returns how many.
    pub(super) fn progress_pipelines(&mut self, ground: &mut Ground) -> usize {
        if self.pipelines.len() == 0 {
            return 0;
        }
        let asked = self.pipelines.attention.take();
        for &id in &asked {
            self.serve_pipeline(ground, id);
        }
        let now = ground.now();
        let overdue = self.pipelines.overdue(now);
        let count = asked.len() + overdue.len();
        for (id, error) in overdue {
            self.fail_pipeline(ground, id, error);
        }
        count
    }

    /// A chunk was moved: it came in this buffer if it was pulled.
    pub(super) fn handle_chunk(
        &mut self,
        ground: &mut Ground,
        chunk: ChunkId,
        result: Result<Option<Buffer>, TransferError>,
    ) {
        let Some(pipelined) = self.pipelines.pipelines.get_mut(&chunk.pipeline) else {
            return;
        };
        pipelined.moves.remove(&chunk.sequence);
        match result {
            Ok(buffer) => {
                let moved = |queue: &mut ChunkQueue| queue.handle_moved(chunk.sequence, buffer);
                pipelined.pipe.update(moved);
                self.serve_pipeline(ground, chunk.pipeline);
            }
            Err(error) => self.fail_pipeline(ground, chunk.pipeline, error),
        }
    }

    /// Starts all moves that should be in progress.
    fn start_moves(&mut self, ground: &mut Ground, id: PipelineId) -> Result<(), TransferError> {
        loop {
            let Some(pipelined) = self.pipelines.pipelines.get_mut(&id) else {
                return Ok(());
            };
            let endpoint = &mut ground.endpoint;
            let next = |queue: &mut ChunkQueue| {
                let next = queue.next_move(|length| endpoint.allocate(length));
                next.ok_or_else(|| queue.is_over())
            };
            let ChunkMove {
                sequence,
                offset,
                buffer,
            } = match pipelined.pipe.update(next) {
                Ok(next) => next,
                Err(is_over) => {
                    if is_over {
                        self.remove_pipeline(ground, id);
                    }
                    return Ok(());
                }
            };
            let Pipelined { handle, pipe, .. } = &*pipelined;
            let moving = match pipelined.is_push {
                true => Moving::push(
                    handle,
                    offset,
                    vec![Bytes::from_owner(Chunk::new(offset, buffer, pipe))],
                ),
                false => Moving::pull(handle, offset, vec![buffer]),
            };
            let left = pipelined.deadline.saturating_duration_since(Instant::now());
            let outcome = Outcome::Chunk(ChunkId {
                pipeline: id,
                sequence,
            });
            // The owner learns at once that not even the first chunk of a pull can be asked for.
            let may_wait = pipelined.is_push || sequence > 0;
            let bulk = self.start_bulk(ground, moving?, left, outcome, may_wait)?;
            if let Some(pipelined) = self.pipelines.pipelines.get_mut(&id) {
                pipelined.moves.insert(sequence, bulk);
            }
        }
    }

    fn fail_pipeline(&mut self, ground: &mut Ground, id: PipelineId, error: TransferError) {
        if let Some(pipelined) = self.remove_pipeline(ground, id) {
            pipelined.pipe.update(|queue| queue.fail(error));
        }
    }

    /// Takes a pipeline out of all tables and cancels its moves.
    fn remove_pipeline(&mut self, ground: &mut Ground, id: PipelineId) -> Option<Pipelined> {
        let pipelined = self.pipelines.pipelines.remove(&id)?;
        for &bulk in pipelined.moves.values() {
            self.cancel_bulk(ground, bulk);
        }
        Some(pipelined)
    }
}

impl Pipelines {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            pipelines: BTreeMap::new(),
            attention: Attention::new(waker),
            next: 0,
        }
    }

    fn next_id(&mut self) -> PipelineId {
        self.next += 1;
        PipelineId(self.next - 1)
    }

    /// When a pipeline ends of which nothing is on its way that could end by itself.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.idle().map(|(_, pipelined)| pipelined.deadline).min()
    }

    /// The pipelines whose time is over, while nothing of them is on its way: their owners took or filled too little.
    fn overdue(&self, now: Instant) -> Vec<(PipelineId, TransferError)> {
        let overdue = self.idle().filter(|(_, pipelined)| pipelined.deadline <= now);
        let errors = overdue.map(|(id, pipelined)| {
            let peer = pipelined.handle.peer_at(pipelined.start).cloned();
            let peer = peer.expect("a transfer of no bytes is over when it begins");
            (id, TransferError::TimedOut { peer })
        });
        errors.collect()
    }

    fn idle(&self) -> impl Iterator<Item = (PipelineId, &Pipelined)> {
        let pipelines = self.pipelines.iter().map(|(&id, pipelined)| (id, pipelined));
        pipelines.filter(|(_, pipelined)| pipelined.moves.is_empty())
    }

    /// How many are in progress.
    pub(super) fn len(&self) -> usize {
        self.pipelines.len()
    }

    /// The engine is gone: whoever waits is told.
    pub(super) fn stop(&mut self) {
        for pipelined in std::mem::take(&mut self.pipelines).into_values() {
            pipelined.pipe.update(|queue| queue.fail(TransferError::Stopped));
        }
    }
}

/// The range, if it is inside what the handle shows.
fn inside(handle: &BulkHandle, range: Range<u64>) -> Result<Range<u64>, SubmitError> {
    if handle.check(&range).is_err() {
        return Err(SubmitError::OutOfRange {
            offset: range.start,
            length: range.end.saturating_sub(range.start),
            region_length: handle.len(),
        });
    }
    Ok(range)
}
