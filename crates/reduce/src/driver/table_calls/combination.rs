//! The end of a call that all ranks have posted.

use ropewalk_fabric::{CallTable, HoldId};
use ropewalk_names::{Rank, SchedulerLoad};
use ropewalk_reduce_core::{Contributions, Member, block_of};

use super::{TableCall, TableCalls};
use crate::{
    driver::reduction::{Completion, SlotResult},
    folding::Memory,
    operation::{Elements, Fold, FoldElements, FoldError, ResultMemory, Side},
    outcome::{Receipt, ReductionError},
    signature::{Signature, cut},
};

/// A call that has ended.
#[derive(Debug)]
pub(in crate::driver) struct Ended {
    pub(in crate::driver) completion: Completion,
    pub(in crate::driver) result: SlotResult,
    /// The memory that the agent need not hold any more, and its name if the agent is to be told.
    pub(in crate::driver) hold: Option<(Option<HoldId>, bytes::Bytes)>,
}

/// The records of one call that all ranks have posted.
struct Records<'a> {
    table: &'a CallTable,
    number: u64,
}

impl TableCalls {
    /// The result of a call that all ranks have posted.
    pub(super) fn combine(&self, number: u64, call: &TableCall) -> Result<ResultMemory, ReductionError> {
        let records = Records {
            table: &self.table,
            number,
        };
        let combined = match &call.begin.fold {
            Fold::Elements(elements) => records.combine(&call.signature, &**elements),
            Fold::Objects(_) => Ok(ResultMemory::Object(Memory::default())),
        };
        self.named(combined)
    }

    /// A result, or the error with the name of this rank.
    pub(super) fn named<T>(&self, result: Result<T, FoldError>) -> Result<T, ReductionError> {
        result.map_err(|error| ReductionError::Operation {
            rank: self.own,
            message: cut(error.to_string(), ReductionError::MESSAGE_LENGTH_MAX),
        })
    }
}

impl TableCalls {
    /// The contribution of all ranks of this host to a call among hosts; none if another host's makes the only one.
    pub(super) fn contribution_of_host(
        &self,
        number: u64,
        call: &TableCall,
    ) -> Result<Option<Vec<u8>>, FoldError> {
        let Fold::Elements(elements) = &call.begin.fold else {
            return Ok(None);
        };
        let records = Records {
            table: &self.table,
            number,
        };
        let length = call.signature.length.unwrap_or_default() as usize;
        let mut whole = match call.signature.contributions {
            Contributions::One(Member(rank)) => {
                let Some(row) = self.row_of(Rank(rank)) else {
                    return Ok(None);
                };
                let mut whole = elements.result(length);
                records.read(row, whole.bytes_mut())?;
                whole
            }
            _ => records.fold(&**elements, length)?,
        };
        Ok(Some(whole.bytes_mut().to_vec()))
    }
}

impl TableCall {
    pub(super) fn end(self, result: Result<Option<ResultMemory>, ReductionError>) -> Ended {
        let Self {
            mut begin, signature, ..
        } = self;
        let receipt = Receipt {
            contributions: signature.contributions.members(begin.members.len()).len() as u32,
            root: signature.root,
            lost: Vec::new(),
            excluded: Vec::new(),
            unprotected: Vec::new(),
            plans: 0,
            scheduler: SchedulerLoad::default(),
        };
        Ended {
            hold: begin.originals.take_hold(),
            completion: begin.completion,
            result: result.map(|memory| (receipt, memory)).map_err(Into::into),
        }
    }
}

impl Records<'_> {
    fn combine(&self, signature: &Signature, elements: &dyn FoldElements) -> Result<ResultMemory, FoldError> {
        let length = signature.length.unwrap_or_default() as usize;
        let rows = self.table.rows();
        let result = match signature.contributions {
            Contributions::One(Member(row)) => {
                let mut result = elements.result(length);
                self.read(row as usize, result.bytes_mut())?;
                result
            }
            Contributions::SideBySide => {
                let mut result = elements.result(length * rows);
                let blocks = result.bytes_mut().chunks_mut(length.max(1));
                (0..rows)
                    .zip(blocks)
                    .try_for_each(|(row, block)| self.read(row, block))?;
                result
            }
            Contributions::Each | Contributions::Shared(_) => self.fold(elements, length)?,
        };
        Ok(ResultMemory::Elements(result))
    }

    /// Folds in the brackets of an ordered reduction.
    fn fold(&self, elements: &dyn FoldElements, length: usize) -> Result<Box<dyn Elements>, FoldError> {
        let mut operand = elements.result(length);
        let mut whole: Option<Box<dyn Elements>> = None;
        let rows: Vec<usize> = (0..self.table.rows()).collect();
        for block in rows.chunks(block_of(rows.len())) {
            let mut folded = elements.result(length);
            for (at, &row) in block.iter().enumerate() {
                match at {
                    0 => self.read(row, folded.bytes_mut())?,
                    _ => {
                        self.read(row, operand.bytes_mut())?;
                        elements.fold(folded.bytes_mut(), operand.bytes_mut(), Side::Right)?;
                    }
                }
            }
            whole = Some(match whole {
                None => folded,
                Some(mut left) => {
                    elements.fold(left.bytes_mut(), folded.bytes_mut(), Side::Right)?;
                    left
                }
            });
        }
        Ok(whole.unwrap_or(operand))
    }

    fn read(&self, row: usize, into: &mut [u8]) -> Result<(), FoldError> {
        let left = into.len();
        match self.table.read_data(row, self.number, into) {
            right if right == left => Ok(()),
            right => Err(FoldError::Elements { left, right }),
        }
    }
}
