//! Parts on their way to this rank, and those that have come and wait for their task.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_fabric::{Buffer, SpanKind};
use ropewalk_rpc::{Engine, Transfer};

use super::{
    contribution::read_header,
    kept::Pulled,
    trace::{Tracer, now_ns},
};
use crate::{
    ids::{ReductionId, TaskId},
    message::{PART_HEADER_SIZE, Source},
    worker::Side,
};

/// The operands that are fetched for tasks.
#[derive(Default)]
pub(super) struct Pulls {
    under_way: Vec<Pull>,
    arrived: BTreeMap<(TaskId, Side), Pulled>,
}

/// For what an operand is fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    pub(super) reduction: ReductionId,
    pub(super) task: TaskId,
    pub(super) side: Side,
}

/// A part on its way here.
struct Pull {
    purpose: Purpose,
    data: Incoming,
    /// `None` if the data brings its token in its header.
    token: Option<Incoming>,
    start_ns: u64,
}

enum Incoming {
    Arrived(Buffer),
    Awaited(Transfer<Buffer>),
}

impl Pulls {
    /// Begins to fetch a part of at most `length_max` bytes: its data with what stands before it, which is the
    /// header if the part is all of its region.
    pub(super) fn start(
        &mut self,
        engine: &mut Engine,
        purpose: Purpose,
        source: &Source,
        length_max: u64,
    ) -> Result<(), String> {
        let Source {
            handle,
            data_offset,
            length,
        } = source;
        let start = data_offset
            .checked_sub(PART_HEADER_SIZE)
            .ok_or("the source has no header")?;
        if *length > length_max {
            return Err(format!("the source has {length} bytes, more than {length_max}"));
        }
        let size = usize::try_from(length + PART_HEADER_SIZE).map_err(|error| error.to_string())?;
        let mut fetch = |offset, size| {
            let into = engine.allocate(size);
            let transfer = engine.pull(handle, offset, into, PULL_TIMEOUT);
            transfer.map(Incoming::Awaited).map_err(|error| error.to_string())
        };
        let data = fetch(start, size)?;
        let token = (start > 0)
            .then(|| fetch(0, PART_HEADER_SIZE as usize))
            .transpose()?;
        self.under_way.push(Pull {
            purpose,
            data,
            token,
            start_ns: now_ns(),
        });
        Ok(())
    }

    /// Takes note of what has arrived; what has ended, and how.
    pub(super) fn collect(&mut self, tracer: &Tracer) -> Vec<(Purpose, Result<(), String>)> {
        let mut ended = Vec::new();
        let mut index = 0;
        while index < self.under_way.len() {
            let pull = &mut self.under_way[index];
            let data = pull.data.advance();
            let token = pull.token.as_mut().map_or(Ok(true), Incoming::advance);
            match (data, token) {
                (Ok(true), Ok(true)) => {
                    let pull = self.under_way.swap_remove(index);
                    ended.push((pull.purpose, Ok(())));
                    self.keep(pull, tracer);
                }
                (Err(message), _) | (_, Err(message)) => {
                    let pull = self.under_way.swap_remove(index);
                    ended.push((pull.purpose, Err(message)));
                }
                _ => index += 1,
            }
        }
        ended
    }

    /// What was fetched as this operand of a task.
    pub(super) fn take(&mut self, task: TaskId, side: Side) -> Option<Pulled> {
        self.arrived.remove(&(task, side))
    }

    /// Gives up everything for a task.
    pub(super) fn forget(&mut self, task: TaskId) {
        self.under_way.retain(|pull| pull.purpose.task != task);
        self.arrived.remove(&(task, Side::Left));
        self.arrived.remove(&(task, Side::Right));
    }

    fn keep(&mut self, pull: Pull, tracer: &Tracer) {
        let Incoming::Arrived(buffer) = pull.data else {
            return;
        };
        let token = match &pull.token {
            Some(Incoming::Arrived(header)) => read_header(header),
            _ => read_header(&buffer),
        };
        let size = buffer.len() as u64 - PART_HEADER_SIZE;
        tracer.detail(SpanKind::Pull, pull.start_ns, || format!("{size} bytes"));
        self.arrived
            .insert((pull.purpose.task, pull.purpose.side), Pulled { buffer, token });
    }
}

impl Incoming {
    /// Whether it is here.
    fn advance(&mut self) -> Result<bool, String> {
        let Self::Awaited(transfer) = self else {
            return Ok(true);
        };
        match transfer.try_take() {
            None => Ok(false),
            Some(Ok(buffer)) => {
                *self = Self::Arrived(buffer);
                Ok(true)
            }
            Some(Err(error)) => Err(error.to_string()),
        }
    }
}

/// How long one pull may take; the parts are small and a dead holder is noticed earlier.
const PULL_TIMEOUT: Duration = Duration::from_secs(60);
