//! The transfers of an engine: single operations on regions, ranges of bulk handles, and pipelines.

mod pipelines;
mod transfers;

use std::time::{Duration, Instant};

use bytes::Bytes;
use ropewalk_fabric::{Buffer, Completion, OperationError, OperationId, RegionHandle, Waker};

use self::{pipelines::Pipelines, transfers::Transfers};
use super::{ground::Ground, in_progress::InProgress};
use crate::{
    Transfer, TransferError,
    bulk::{BulkId, Piece},
    operations::Operations,
    promise::{Promise, Work, promise},
};

/// The transfers in progress, and the operations that they take.
pub(super) struct Bulk {
    operations: Operations<Moved>,
    transfers: Transfers,
    pipelines: Pipelines,
}

/// The purpose of an operation.
enum Moved {
    /// Part of a bulk transfer.
    Piece(BulkId, Piece),
    Pull(Promise<Result<Buffer, TransferError>>),
    /// With how many bytes are pushed.
    Push(Promise<Result<(), TransferError>>, u64),
}

impl Bulk {
    pub(super) fn new(waker: Waker) -> Self {
        Self {
            operations: Operations::new(),
            transfers: Transfers::default(),
            pipelines: Pipelines::new(waker),
        }
    }

    /// Fills `into` from the region, from `offset` on, and gives it back.
    pub(super) fn pull(
        &mut self,
        ground: &mut Ground,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<Transfer<Buffer>, TransferError> {
        let operation = ground.endpoint.get(region, offset, into, timeout)?;
        let (promise, pending) = promise(Some(Work::Operation(operation)), &ground.abandoned);
        ground.metrics.pulls.started += 1;
        self.operations.insert(operation, Moved::Pull(promise));
        Ok(Transfer::new(pending))
    }

    /// Writes `from` into the region, from `offset` on.
    pub(super) fn push(
        &mut self,
        ground: &mut Ground,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        let length = from.len() as u64;
        let operation = ground.endpoint.put(region, offset, from, timeout)?;
        let (promise, pending) = promise(Some(Work::Operation(operation)), &ground.abandoned);
        ground.metrics.pushes.started += 1;
        self.operations.insert(operation, Moved::Push(promise, length));
        Ok(Transfer::new(pending))
    }

    /// Serves the pipelines, and tries again what found no room. Returns how much happened.
    pub(super) fn progress(&mut self, ground: &mut Ground) -> usize {
        let happened = self.progress_pipelines(ground);
        self.progress_bulk(ground);
        happened
    }

    /// An operation has ended. Gives the result back if the operation is of no transfer.
    pub(super) fn handle_ended(
        &mut self,
        ground: &mut Ground,
        operation: OperationId,
        result: Result<Completion, OperationError>,
    ) -> Option<Result<Completion, OperationError>> {
        match (self.operations.remove(operation), result) {
            (None, result) => return Some(result),
            (Some(Moved::Pull(promise)), Ok(Completion::Got(buffer))) => {
                ground.metrics.pulls.bytes += buffer.len() as u64;
                promise.fulfil(Ok(buffer));
            }
            (Some(Moved::Pull(promise)), Err(error)) => {
                ground.metrics.pulls.failed += 1;
                promise.fulfil(Err(error.into()));
            }
            (Some(Moved::Push(promise, length)), Ok(Completion::Put)) => {
                ground.metrics.pushes.bytes += length;
                promise.fulfil(Ok(()));
            }
            (Some(Moved::Push(promise, _)), Err(error)) => {
                ground.metrics.pushes.failed += 1;
                promise.fulfil(Err(error.into()));
            }
            (Some(Moved::Piece(bulk, piece)), result) => {
                self.handle_piece(ground, operation, bulk, piece, result);
            }
            (Some(_), Ok(completion)) => unreachable!("an operation ended as another kind: {completion:?}"),
        }
        None
    }

    /// Ends what nobody waits for any longer.
    pub(super) fn handle_abandoned(&mut self, ground: &mut Ground, operation: OperationId) {
        let Some(moved) = self.operations.remove(operation) else {
            return;
        };
        ground.endpoint.cancel(operation);
        match moved {
            Moved::Pull(_) => ground.metrics.pulls.failed += 1,
            Moved::Push(..) => ground.metrics.pushes.failed += 1,
            Moved::Piece(..) => {}
        }
    }

    /// When there is something to do that no operation tells of.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.transfers.next_deadline(), self.pipelines.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// How much is in progress here.
    pub(super) fn in_progress(&self) -> InProgress {
        InProgress {
            operations: self.operations.len(),
            bulk_transfers: self.transfers.len(),
            pipelines: self.pipelines.len(),
            ..InProgress::default()
        }
    }

    /// The engine is gone: whoever waits is told.
    pub(super) fn stop(&mut self) {
        self.transfers.stop();
        self.pipelines.stop();
        for moved in self.operations.drain() {
            match moved {
                Moved::Piece(..) => {}
                Moved::Pull(promise) => promise.fulfil(Err(TransferError::Stopped)),
                Moved::Push(promise, _) => promise.fulfil(Err(TransferError::Stopped)),
            }
        }
    }
}
