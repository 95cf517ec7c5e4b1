//! Chunks that come before their rows: the first ones of a plan are sent without a grant.

use std::time::Duration;

use bytes::Bytes;
use ropewalk_reduce_core::{ChunkHeader, Worker};
use ropewalk_rpc::{Fault, Responder};

use super::{procedures::ChunkPlace, progress::ProgressThread};

/// The chunks that wait for their rows.
#[derive(Default)]
pub(super) struct EarlyChunks(Vec<Arrived>);

/// A chunk that has come, or can be read.
struct Arrived {
    chunk: ChunkHeader,
    bytes: Bytes,
    /// Where this rank reads it, and who waits for that.
    there: Option<(ChunkPlace, Responder<Duration>)>,
}

impl EarlyChunks {
    /// The most bytes that wait. The sender of one more cannot reach this rank, and gets another place in a new plan.
    const BYTES_MAX: usize = 8 << 20;

    fn has_room_for(&self, bytes: usize) -> bool {
        let waiting: usize = self.0.iter().map(|arrived| arrived.bytes.len()).sum();
        waiting + bytes <= Self::BYTES_MAX && self.0.len() < Worker::EARLY_MAX
    }
}

impl ProgressThread {
    /// A chunk has come, or can be read. It is taken at once, or waits for its row.
    pub(super) fn receive_chunk(
        &mut self,
        now: Duration,
        (chunk, bytes, place): (ChunkHeader, Bytes, Option<ChunkPlace>),
        responder: Responder<Duration>,
    ) {
        let is_early = self.worker.is_early(&chunk);
        if is_early && !self.arrivals.early.has_room_for(bytes.len()) {
            return responder.answer(Err(Fault::new("too many chunks wait for their rows here")));
        }
        let there = match place {
            Some(place) => Some((place, responder)),
            None => {
                self.engine.answer(responder, Ok(now));
                None
            }
        };
        let arrived = Arrived { chunk, bytes, there };
        match is_early {
            true => self.arrivals.early.0.push(arrived),
            false => self.take_arrived(arrived),
        }
    }

    /// Takes the chunks whose rows have come.
    pub(super) fn take_early_chunks(&mut self) {
        if self.has_due_chunks() {
            let waiting = std::mem::take(&mut self.arrivals.early.0).into_iter();
            let (early, due) = waiting.partition(|arrived| self.worker.is_early(&arrived.chunk));
            self.arrivals.early.0 = early;
            let due: Vec<Arrived> = due;
            due.into_iter().for_each(|arrived| self.take_arrived(arrived));
        }
    }

    /// Says if the row of a chunk has come, or will not.
    pub(super) fn has_due_chunks(&self) -> bool {
        let mut waiting = self.arrivals.early.0.iter();
        waiting.any(|arrived| !self.worker.is_early(&arrived.chunk))
    }

    fn take_arrived(&mut self, arrived: Arrived) {
        match arrived.there {
            None => self.take_chunk(&arrived.chunk, arrived.bytes.into()),
            Some((ChunkPlace { handle, length }, responder)) => {
                self.read_chunk(arrived.chunk, &handle, length, responder);
            }
        }
    }
}
