//! What a rank keeps for one reduction: its contribution, the partial results it made, and the result.

use std::{
    any::Any,
    collections::BTreeMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use ropewalk_fabric::{Buffer, HoldId, RegionHandle};

use super::{
    contribution::{read_header, write_header},
    reduction::Completion,
};
use crate::{
    ids::{PartId, Token},
    message::{PART_HEADER_SIZE, TaskFailure},
    operation::Fold,
    outcome::ReductionError,
    pull_failure::PullFailure,
    signature::cut,
    worker::{Input, Side},
};

/// What a rank keeps for one reduction, until it ends.
pub(super) struct Kept {
    /// This rank's number among the members.
    pub(super) index: u32,
    /// Which bytes of the contribution each stripe has.
    pub(super) stripes: Vec<Range<u64>>,
    /// Whether these are stripes of a vector, rather than the whole of an object.
    pub(super) is_vector: bool,
    pub(super) contribution: Bytes,
    /// Where the contribution and the partial results are read by others.
    pub(super) contribution_handle: RegionHandle,
    pub(super) made: BTreeMap<PartId, Made>,
    /// At the root, the content of each finished stripe.
    pub(super) committed: Vec<Option<Bytes>>,
    pub(super) hold: Option<HoldId>,
    pub(super) fold: Arc<dyn Fold>,
    /// When the caller is told that it took too long, whatever the scheduler says.
    pub(super) deadline: Option<Instant>,
    pub(super) completion: Completion,
}

/// A partial result that this rank made and serves.
pub(super) struct Made {
    pub(super) bytes: Bytes,
    pub(super) handle: RegionHandle,
}

/// A part that was pulled: header space, then data, and its token.
pub(super) struct Pulled {
    pub(super) buffer: Buffer,
    pub(super) token: Token,
}

/// What a task made: header, then data.
pub(super) struct Product {
    pub(super) bytes: Bytes,
    pub(super) token: Token,
}

enum Operand {
    Local(Bytes, Token),
    Pulled(Pulled),
}

const HEADER: usize = PART_HEADER_SIZE as usize;
/// The largest encoded object.
const OBJECT_SIZE_MAX: u64 = 1 << 32;

impl Kept {
    /// Takes or combines operands; `take_pulled` gives what was pulled for the task.
    pub(super) fn combine(
        &self,
        left: Input,
        right: Option<Input>,
        mut take_pulled: impl FnMut(Side) -> Option<Pulled>,
    ) -> Result<Product, TaskFailure> {
        let left = self.operand(left, &mut take_pulled)?;
        let Some(right) = right else {
            return Ok(match left {
                Operand::Local(bytes, token) => Product { bytes, token },
                Operand::Pulled(Pulled { buffer, token }) => Product {
                    bytes: Bytes::from_owner(buffer),
                    token,
                },
            });
        };
        let right = self.operand(right, &mut take_pulled)?;
        let token = left.token() + right.token();
        // What was pulled is this task's alone, and is combined in place; what is kept is never written again.
        let (mut accumulator, other, side) = match (left, right) {
            (Operand::Pulled(left), right) => (left.buffer, right, Side::Right),
            (left, Operand::Pulled(right)) => (right.buffer, left, Side::Left),
            (left, right) => (Buffer::copy_of(left.bytes()), right, Side::Right),
        };
        // A user's operation that panics must cost its reduction, not the whole process.
        let folded = catch_unwind(AssertUnwindSafe(|| {
            self.fold
                .fold(&mut accumulator, HEADER, &other.bytes()[HEADER..], side)
        }));
        let operation_failed = |message: String| TaskFailure::Operation {
            message: cut(message, ReductionError::MESSAGE_LENGTH_MAX),
        };
        folded
            .map_err(|panic| operation_failed(format!("it panicked: {}", panic_message(&*panic))))?
            .map_err(|error| operation_failed(error.to_string()))?;
        write_header(&mut accumulator, token);
        Ok(Product {
            bytes: Bytes::from_owner(accumulator),
            token,
        })
    }

    /// How long a part of this reduction may be, in bytes.
    pub(super) fn part_length_max(&self) -> u64 {
        match self.is_vector {
            true => self
                .stripes
                .iter()
                .map(|stripe| stripe.end - stripe.start)
                .max()
                .unwrap_or(0),
            false => OBJECT_SIZE_MAX,
        }
    }

    /// The result, if this rank is the root and all stripes are finished.
    pub(super) fn result(&mut self) -> Option<Vec<Bytes>> {
        std::mem::take(&mut self.committed).into_iter().collect()
    }

    fn operand(
        &self,
        input: Input,
        take_pulled: &mut impl FnMut(Side) -> Option<Pulled>,
    ) -> Result<Operand, TaskFailure> {
        let missing = |part| TaskFailure::Pull {
            part,
            failure: PullFailure::NotHeld,
        };
        match input {
            Input::Local(part) if part.number == self.index => {
                let token = read_header(&self.contribution);
                let range = self.stripe_range(part).ok_or_else(|| missing(part))?;
                // The 64 bytes before a stripe are the header's only for the first; nobody reads them.
                Ok(Operand::Local(self.contribution.slice(range), token))
            }
            Input::Local(part) => {
                let made = self.made.get(&part).ok_or_else(|| missing(part))?;
                Ok(Operand::Local(made.bytes.clone(), read_header(&made.bytes)))
            }
            Input::Pulled(part, side) => take_pulled(side)
                .map(Operand::Pulled)
                .ok_or_else(|| missing(part)),
        }
    }

    /// Where a stripe stands in the contribution's memory, with as many bytes before it as a header has.
    fn stripe_range(&self, part: PartId) -> Option<Range<usize>> {
        let start = self.stripes.get(part.stripe as usize)?.start as usize;
        let end = match self.is_vector {
            true => HEADER + self.stripes[part.stripe as usize].end as usize,
            false => self.contribution.len(),
        };
        Some(start..end)
    }
}

impl Operand {
    /// Room for a header, then the data.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Local(bytes, _) => bytes,
            Self::Pulled(pulled) => &pulled.buffer,
        }
    }

    fn token(&self) -> Token {
        match self {
            Self::Local(_, token) => *token,
            Self::Pulled(pulled) => pulled.token,
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
