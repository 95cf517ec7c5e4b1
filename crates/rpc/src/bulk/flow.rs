//! The range of a pipelined transfer, which is cut into chunks, and its end.

use std::{mem, ops::Range, task, time::Instant};

use ropewalk_fabric::Buffer;

use super::pipeline::{Controller, Pipeline};
use crate::TransferError;

/// The range of one pipelined transfer, and who waits for its chunks.
pub(super) struct Flow {
    /// The part of the range that was not cut into chunks yet.
    rest: Range<u64>,
    spare: Vec<Buffer>,
    controller: Controller,
    /// Since when the owner waits.
    awaited_since: Option<Instant>,
    /// True if the engine was asked for attention that it did not give yet.
    wants_attention: bool,
    end: End,
    waker: Option<task::Waker>,
}

/// The end of a transfer, as far as the owner knows of it.
enum End {
    /// There is none yet.
    Open,
    /// The transfer failed; the owner is to be told.
    Failed(TransferError),
    /// The owner knows, or is gone.
    Closed,
}

/// A chunk that is cut off the range.
pub(super) struct NextChunk {
    pub(super) offset: u64,
    pub(super) length: usize,
    /// Memory for it, if there is some.
    pub(super) buffer: Option<Buffer>,
}

impl Flow {
    /// One is on its way back while the next one is taken.
    const SPARE_MAX: usize = 2;

    pub(super) fn new(range: Range<u64>, pipeline: Pipeline) -> Self {
        Self {
            spare: Vec::new(),
            controller: Controller::new(pipeline, range.end - range.start),
            rest: range,
            awaited_since: None,
            wants_attention: false,
            end: End::Open,
            waker: None,
        }
    }

    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Returns true if the whole range was cut into chunks, or is not wanted any longer.
    pub(super) fn is_cut_up(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next chunk, of the length that is best now; `None` if there is none left.
    pub(super) fn cut(&mut self) -> Option<NextChunk> {
        if self.rest.is_empty() {
            return None;
        }
        let left = self.rest.end - self.rest.start;
        // At most the chunk's length, which is a usize.
        let length = left.min(self.controller.chunk() as u64) as usize;
        let offset = self.rest.start;
        self.rest.start += length as u64;
        // Those of an earlier length are of no use any longer.
        let buffer = std::iter::from_fn(|| self.spare.pop()).find(|spare| spare.len() == length);
        Some(NextChunk {
            offset,
            length,
            buffer,
        })
    }

    /// A chunk's memory came back.
    pub(super) fn handle_returned(&mut self, buffer: Buffer) {
        let is_of_use = buffer.len() == self.controller.chunk() && !self.rest.is_empty();
        if is_of_use && self.spare.len() < Self::SPARE_MAX {
            self.spare.push(buffer);
        }
    }

    /// The engine gives its attention now.
    pub(super) fn attend(&mut self) {
        self.wants_attention = false;
    }

    /// There is something for the engine to do. Returns whether it was not asked for attention already.
    pub(super) fn ask_for_attention(&mut self) -> bool {
        !mem::replace(&mut self.wants_attention, true)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.end, End::Open)
    }

    /// Returns true if the owner knows of the end, or wants no more.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self.end, End::Closed)
    }

    /// The transfer failed.
    pub(super) fn fail(&mut self, error: TransferError) {
        if self.is_open() {
            self.end = End::Failed(error);
        }
        self.rest.start = self.rest.end;
        self.spare.clear();
    }

    /// The owner wants no more.
    pub(super) fn close(&mut self) {
        self.end = End::Closed;
        self.rest.start = self.rest.end;
        self.spare.clear();
    }

    /// The end that the owner gets instead of the next chunk: once the error if the transfer failed, then
    /// nothing. `None` as long as chunks may come.
    pub(super) fn take_end(&mut self) -> Option<Option<TransferError>> {
        if self.is_open() {
            return None;
        }
        match mem::replace(&mut self.end, End::Closed) {
            End::Failed(error) => Some(Some(error)),
            End::Open | End::Closed => Some(None),
        }
    }

    /// The owner has to wait.
    pub(super) fn await_chunk(&mut self, now: Instant) {
        self.awaited_since.get_or_insert(now);
    }

    /// The owner has got a chunk of this length.
    pub(super) fn handle_taken(&mut self, now: Instant, length: usize) {
        let awaited_since = self.awaited_since.take().unwrap_or(now);
        let awaited = now.saturating_duration_since(awaited_since);
        self.controller.handle_taken(now, length, awaited);
    }

    /// Whom to wake when there is something for the owner.
    pub(super) fn set_waker(&mut self, waker: task::Waker) {
        self.waker = Some(waker);
    }

    pub(super) fn take_waker(&mut self) -> Option<task::Waker> {
        self.waker.take()
    }
}
