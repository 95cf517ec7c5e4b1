//! Ranges of bulk handles that are moved: the operations that make up each transfer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ropewalk_fabric::{AccessError, Buffer, Completion, OperationError, OperationId, SubmitError};

use super::{Bulk, Moved, pipelines::ChunkId};
use crate::{
    BulkHandle, Transfer, TransferError,
    bulk::{BulkId, Moving, Piece},
    engine::ground::Ground,
    promise::{Promise, Work, promise},
};

/// The bulk transfers in progress.
#[derive(Default)]
pub(super) struct Transfers {
    transfers: BTreeMap<BulkId, BulkTransfer>,
    /// Those that found no room for a piece.
    stalled: BTreeSet<BulkId>,
    /// When those are tried again if nothing happens until then.
    retry: Option<Instant>,
    next: u64,
}

struct BulkTransfer {
    moving: Moving,
    deadline: Instant,
    operations: BTreeSet<OperationId>,
    outcome: Outcome,
}

/// Whom to give what a bulk transfer brings.
pub(super) enum Outcome {
    Chunk(ChunkId),
    Pull(Promise<Result<Buffer, TransferError>>),
    PullScattered(Promise<Result<Vec<Buffer>, TransferError>>),
    Push(Promise<Result<(), TransferError>>),
}

impl Bulk {
    /// Fills `into` from what the handle shows from `offset` on, and gives it back.
    pub(in crate::engine) fn pull_bulk(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<Transfer<Buffer>, TransferError> {
        if let Some((region, offset)) = handle.single_range(offset, into.len()) {
            return self.pull(ground, region, offset, into, timeout);
        }
        let moving = Moving::pull(handle, offset, vec![into])?;
        self.begin_bulk(ground, moving, timeout, Outcome::Pull)
    }

    /// As [`pull_bulk`](Self::pull_bulk), but fills many buffers, one after the other.
    pub(in crate::engine) fn pull_bulk_scattered(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        offset: u64,
        into: Vec<Buffer>,
        timeout: Duration,
    ) -> Result<Transfer<Vec<Buffer>>, TransferError> {
        let moving = Moving::pull(handle, offset, into)?;
        self.begin_bulk(ground, moving, timeout, Outcome::PullScattered)
    }

    /// Writes `from` into what the handle shows from `offset` on.
    pub(in crate::engine) fn push_bulk(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        if let Some((region, offset)) = handle.single_range(offset, from.len()) {
            return self.push(ground, region, offset, from, timeout);
        }
        self.push_bulk_gathered(ground, handle, offset, vec![from], timeout)
    }

    /// As [`push_bulk`](Self::push_bulk), but writes many parts, one after the other.
    pub(in crate::engine) fn push_bulk_gathered(
        &mut self,
        ground: &mut Ground,
        handle: &BulkHandle,
        offset: u64,
        from: Vec<Bytes>,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        let moving = Moving::push(handle, offset, from)?;
        self.begin_bulk(ground, moving, timeout, Outcome::Push)
    }

    fn begin_bulk<T>(
        &mut self,
        ground: &mut Ground,
        moving: Moving,
        timeout: Duration,
        outcome: impl FnOnce(Promise<Result<T, TransferError>>) -> Outcome,
    ) -> Result<Transfer<T>, TransferError> {
        let (promise, pending) = promise(Some(Work::Bulk(self.transfers.next_id())), &ground.abandoned);
        self.start_bulk(ground, moving, timeout, outcome(promise), false)?;
        Ok(Transfer::new(pending))
    }

    /// Starts a transfer whose result is for `outcome`. If there is no room for any of it, it `may_wait` until
    /// there is.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start_bulk(
        &mut self,
        ground: &mut Ground,
        moving: Moving,
        timeout: Duration,
        outcome: Outcome,
        may_wait: bool,
    ) -> Result<BulkId, TransferError> {
        let bulk = self.transfers.next_id();
        self.transfers.next += 1;
        let is_done = moving.is_done();
        let transfer = BulkTransfer {
            moving,
            deadline: deadline_after(timeout),
            operations: BTreeSet::new(),
            outcome,
        };
        self.transfers.transfers.insert(bulk, transfer);
        if is_done {
            self.finish_bulk(ground, bulk);
            return Ok(bulk);
        }
        match self.start_pieces(ground, bulk) {
            Ok(None) => Ok(bulk),
            Ok(Some(busy)) if !may_wait && self.transfers.has_nothing_in_progress(bulk) => {
                self.cancel_bulk(ground, bulk);
                Err(busy.into())
            }
            Ok(Some(_)) => {
                self.transfers.stall(bulk);
                Ok(bulk)
            }
            Err(error) => {
                self.cancel_bulk(ground, bulk);
                Err(error)
            }
        }
    }

    /// Takes a transfer out of all tables; no event will tell of it.
    pub(in crate::engine) fn cancel_bulk(&mut self, ground: &mut Ground, bulk: BulkId) {
        self.remove_bulk(ground, bulk);
    }

    pub(super) fn handle_piece(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        bulk: BulkId,
        piece: Piece,
        result: Result<Completion, OperationError>,
    ) {
        let Some(transfer) = self.transfers.transfers.get_mut(&bulk) else {
            return;
        };
        transfer.operations.remove(&operation);
        let moving = &mut transfer.moving;
        match result {
            Ok(Completion::Got(buffer)) => {
                ground.metrics.pulls.bytes += buffer.len() as u64;
                moving.handle_got(piece, buffer);
            }
            Ok(Completion::Put) => {
                ground.metrics.pushes.bytes += piece.length as u64;
                moving.handle_put(&piece);
            }
            Err(OperationError::Access {
                source: AccessError::Busy,
                ..
            }) => {
                // Not at once: the peer is to get time to serve what it has.
                moving.handle_refused(piece);
                self.transfers.stall(bulk);
                return;
            }
            Err(error) => return self.fail_bulk(ground, bulk, error.into()),
            Ok(completion) => unreachable!("a piece ended as another kind: {completion:?}"),
        }
        if moving.is_done() {
            return self.finish_bulk(ground, bulk);
        }
        self.go_on_with_bulk(ground, bulk);
    }

    /// Tries again what found no room.
    pub(super) fn progress_bulk(&mut self, ground: &mut Ground) {
        if self.transfers.stalled.is_empty() {
            return;
        }
        let now = Instant::now();
        if self.transfers.retry.is_some_and(|retry| now < retry) {
            return;
        }
        self.transfers.retry = None;
        for bulk in std::mem::take(&mut self.transfers.stalled) {
            match self.transfers.transfers.get(&bulk) {
                Some(transfer) if transfer.deadline <= now => {
                    let peer = transfer.moving.peer().cloned();
                    let peer = peer.expect("a transfer of no bytes is done when it is started");
                    self.fail_bulk(ground, bulk, TransferError::TimedOut { peer });
                }
                Some(_) => self.go_on_with_bulk(ground, bulk),
                None => {}
            }
        }
    }

    fn go_on_with_bulk(&mut self, ground: &mut Ground, bulk: BulkId) {
        match self.start_pieces(ground, bulk) {
            Ok(None) => {}
            Ok(Some(_)) => self.transfers.stall(bulk),
            Err(error) => self.fail_bulk(ground, bulk, error),
        }
    }

    /// Starts all pieces that may be in progress; gives the reason if there was no room for one.
    fn start_pieces(
        &mut self,
        ground: &mut Ground,
        bulk: BulkId,
    ) -> Result<Option<SubmitError>, TransferError> {
        let Some(transfer) = self.transfers.transfers.get_mut(&bulk) else {
            return Ok(None);
        };
        let moving = &mut transfer.moving;
        let mut left = None;
        while let Some(piece) = moving.next_piece() {
            let deadline = transfer.deadline;
            let left = *left.get_or_insert_with(|| deadline.saturating_duration_since(Instant::now()));
            let (into, from) = (
                moving.take_buffer(&piece, |length| ground.endpoint.allocate(length)),
                moving.bytes(&piece),
            );
            let region = moving.region(&piece);
            let (counts, started) = match into {
                Some(into) => {
                    let started = ground.endpoint.get(region, piece.offset, into, left);
                    (&mut ground.metrics.pulls, started)
                }
                None => {
                    let started = ground.endpoint.put(region, piece.offset, from, left);
                    (&mut ground.metrics.pushes, started)
                }
            };
            match started {
                Ok(operation) => {
                    counts.started += 1;
                    transfer.operations.insert(operation);
                    self.operations.insert(operation, Moved::Piece(bulk, piece));
                }
                Err(busy @ SubmitError::Busy { .. }) => {
                    moving.handle_refused(piece);
                    return Ok(Some(busy));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn finish_bulk(&mut self, ground: &mut Ground, bulk: BulkId) {
        let Some(transfer) = self.remove_bulk(ground, bulk) else {
            return;
        };
        let handle = transfer.moving.handle().clone();
        let moved = transfer.moving.finish();
        let moved = moved.map_err(|mismatch| mismatch.into_error(&handle));
        self.give_outcome(ground, transfer.outcome, moved);
    }

    fn fail_bulk(&mut self, ground: &mut Ground, bulk: BulkId, error: TransferError) {
        if let Some(transfer) = self.remove_bulk(ground, bulk) {
            self.give_outcome(ground, transfer.outcome, Err(error));
        }
    }

    fn give_outcome(
        &mut self,
        ground: &mut Ground,
        outcome: Outcome,
        result: Result<Vec<Buffer>, TransferError>,
    ) {
        let first = |buffers: Vec<Buffer>| buffers.into_iter().next();
        match outcome {
            Outcome::Chunk(chunk) => self.handle_chunk(ground, chunk, result.map(first)),
            Outcome::Pull(promise) => {
                promise.fulfil(result.map(|buffers| first(buffers).unwrap_or_default()));
            }
            Outcome::PullScattered(promise) => promise.fulfil(result),
            Outcome::Push(promise) => promise.fulfil(result.map(drop)),
        }
    }

    fn remove_bulk(&mut self, ground: &mut Ground, bulk: BulkId) -> Option<BulkTransfer> {
        let transfer = self.transfers.transfers.remove(&bulk)?;
        for &operation in &transfer.operations {
            self.operations.remove(operation);
            ground.endpoint.cancel(operation);
        }
        Some(transfer)
    }
}

impl Transfers {
    /// How many are in progress.
    pub(super) fn len(&self) -> usize {
        self.transfers.len()
    }

    /// When those that found no room are tried again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.retry.filter(|_| !self.stalled.is_empty())
    }

    /// The engine is gone: whoever waits is told.
    pub(super) fn stop(&mut self) {
        for transfer in std::mem::take(&mut self.transfers).into_values() {
            match transfer.outcome {
                // The pipeline tells.
                Outcome::Chunk(_) => {}
                Outcome::Pull(promise) => promise.fulfil(Err(TransferError::Stopped)),
                Outcome::PullScattered(promise) => promise.fulfil(Err(TransferError::Stopped)),
                Outcome::Push(promise) => promise.fulfil(Err(TransferError::Stopped)),
            }
        }
    }

    /// The name of the next transfer.
    fn next_id(&self) -> BulkId {
        BulkId(self.next)
    }

    fn has_nothing_in_progress(&self, bulk: BulkId) -> bool {
        let transfer = self.transfers.get(&bulk);
        transfer.is_none_or(|transfer| transfer.operations.is_empty())
    }

    fn stall(&mut self, bulk: BulkId) {
        self.stalled.insert(bulk);
        self.retry.get_or_insert_with(|| Instant::now() + RETRY_AFTER);
    }
}

/// When what may take so long from now on ends.
pub(super) fn deadline_after(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or(now + TIMEOUT_MAX)
}

/// How long one that found no room waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_micros(200);
/// A time-out that no clock can show is one that nobody can wait for.
const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
