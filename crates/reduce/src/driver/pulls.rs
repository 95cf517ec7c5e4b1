//! Parts on their way to this rank, and those that have come and wait for their task.

use std::{collections::BTreeMap, error::Error, time::Duration};

use ropewalk_fabric::{AccessError, Address, Buffer, SpanKind};
use ropewalk_rpc::{Engine, Transfer, TransferError};

use super::{
    contribution::read_header,
    kept::Pulled,
    trace::{Tracer, now_ns},
};
use crate::{
    ids::{ReductionId, TaskId},
    message::{PART_HEADER_SIZE, Source},
    pull_failure::PullFailure,
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
    /// From whom, and what comes.
    Awaited(Address, Transfer<Buffer>),
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
    ) -> Result<(), PullFailure> {
        let Source {
            handle,
            data_offset,
            length,
        } = source;
        let no_part = PullFailure::NoPart {
            data_offset: *data_offset,
            length: *length,
            length_max,
        };
        let (Some(start), true) = (data_offset.checked_sub(PART_HEADER_SIZE), *length <= length_max) else {
            return Err(no_part);
        };
        let size = usize::try_from(length + PART_HEADER_SIZE).map_err(|_| no_part)?;
        let mut fetch = |offset, size| {
            let into = engine.allocate(size);
            let transfer = engine.pull(handle, offset, into, PULL_TIMEOUT);
            let holder = &handle.address;
            transfer
                .map(|transfer| Incoming::Awaited(holder.clone(), transfer))
                .map_err(|error| failure(holder, error))
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
    pub(super) fn collect(&mut self, tracer: &Tracer) -> Vec<(Purpose, Result<(), PullFailure>)> {
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
                (Err(failure), _) | (_, Err(failure)) => {
                    let pull = self.under_way.swap_remove(index);
                    ended.push((pull.purpose, Err(failure)));
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
    /// True if it is here.
    fn advance(&mut self) -> Result<bool, PullFailure> {
        let Self::Awaited(holder, transfer) = self else {
            return Ok(true);
        };
        match transfer.try_take() {
            None => Ok(false),
            Some(Ok(buffer)) => {
                *self = Self::Arrived(buffer);
                Ok(true)
            }
            Some(Err(error)) => Err(failure(holder, error)),
        }
    }
}

/// The failure of a transfer from this holder.
fn failure(holder: &Address, error: TransferError) -> PullFailure {
    let holder = holder.clone();
    match error {
        TransferError::PeerDied { source, .. } => PullFailure::HolderGone {
            holder,
            reason: source.to_string(),
        },
        TransferError::TimedOut { .. } => PullFailure::TimedOut { holder },
        TransferError::Access {
            source: AccessError::OutOfRange | AccessError::Unknown,
            ..
        } => PullFailure::NoSuchRegion { holder },
        error => {
            let mut reason = error.to_string();
            if let Some(source) = error.source() {
                reason.push_str(&format!(": {source}"));
            }
            PullFailure::Transfer { holder, reason }
        }
    }
}

/// How long one pull may take; the parts are small and a dead holder is noticed earlier.
const PULL_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use ropewalk_fabric::PeerDeath;

    use super::*;

    /// A failed pull says who did not give the part, and which of the usual reasons it was.
    #[test]
    fn failures_name_the_holder() {
        let holder: Address = "tcp://10.0.0.7:4711".parse().unwrap();
        let peer = holder.clone();
        let died = TransferError::PeerDied {
            peer: peer.clone(),
            source: PeerDeath::Killed,
        };
        let access = |source| TransferError::Access {
            peer: peer.clone(),
            source,
        };
        let timed_out = TransferError::TimedOut { peer: peer.clone() };
        for (error, expected) in [
            (
                died,
                "tcp://10.0.0.7:4711, which holds the part, is gone: its process died",
            ),
            (
                access(AccessError::Unknown),
                "tcp://10.0.0.7:4711 has no such region (any longer)",
            ),
            (timed_out, "tcp://10.0.0.7:4711 did not give the part in time"),
            (
                TransferError::Stopped,
                "the transfer from tcp://10.0.0.7:4711 failed: the engine was dropped before the transfer ended",
            ),
        ] {
            assert_eq!(failure(&holder, error).to_string(), expected);
        }
    }
}
