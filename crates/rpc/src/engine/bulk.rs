//! What an engine does with memory: exposing it to peers, and reading and writing what they expose.

use std::time::Duration;

use bytes::Bytes;
use ropewalk_fabric::{Buffer, RegionHandle, Withdrawn};

use crate::{
    Engine, Transfer, TransferError,
    engine::Waiting,
    promise::{Work, promise},
};

impl Engine {
    /// Zeroed memory to expose, or to pull into: where there is memory that peers on this host can reach without
    /// help, it is of that.
    pub fn allocate(&mut self, length: usize) -> Buffer {
        self.endpoint.allocate(length)
    }

    /// Lets peers that are given the handle pull `memory`, until it is withdrawn.
    pub fn expose(&mut self, memory: Bytes) -> RegionHandle {
        self.endpoint.expose(memory)
    }

    /// Lets peers that are given the handle pull from and push into `memory`, until it is withdrawn.
    pub fn expose_writable(&mut self, memory: Buffer) -> RegionHandle {
        self.endpoint.expose_writable(memory)
    }

    /// Ends the exposure and gives the memory back; `None` if the handle is of no region exposed here.
    pub fn withdraw(&mut self, handle: &RegionHandle) -> Option<Withdrawn> {
        self.endpoint.withdraw(handle)
    }

    /// Fills `into` from the region, from `offset` on, and gives it back.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn pull(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<Transfer<Buffer>, TransferError> {
        let operation = self.endpoint.get(region, offset, into, timeout)?;
        let (promise, pending) = promise(Some(Work::Operation(operation)), &self.abandoned);
        self.metrics.pulls.started += 1;
        self.operations.insert(operation, Waiting::Pull(promise));
        Ok(Transfer::new(pending))
    }

    /// Writes `from` into the region, from `offset` on.
    ///
    /// # Errors
    /// If the transfer cannot even be started; see [`TransferError::Submit`].
    pub fn push(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<Transfer<()>, TransferError> {
        let length = from.len() as u64;
        let operation = self.endpoint.put(region, offset, from, timeout)?;
        let (promise, pending) = promise(Some(Work::Operation(operation)), &self.abandoned);
        self.metrics.pushes.started += 1;
        self.operations.insert(operation, Waiting::Push(promise, length));
        Ok(Transfer::new(pending))
    }
}
