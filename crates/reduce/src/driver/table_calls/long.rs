//! The work on a long call that all ranks have posted.
//!
//! More than two ranks share it: each combines the chunks that it claims. A rank that gets the result combines into its
//! own memory. What others need of a chunk it copies into the common result, and takes from there what others have
//! combined. A chunk that was claimed and does not come, because its rank was killed or has no processor, is combined
//! once more by a rank that waits for it: all come to the same bits.
//!
//! Two ranks would copy as much as they would save: each that gets the result combines all by itself.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, TryLockError},
    time::{Duration, Instant},
};

use ropewalk_fabric::CallTable;
use ropewalk_reduce_core::{Contributions, Member, block_of};

use crate::{
    operation::{Elements, FoldElements, FoldError, ResultMemory, Side},
    signature::Signature,
};

/// A rank's part in the work on a long call.
pub(in crate::driver) struct LongCall {
    number: u64,
    fold: Arc<dyn FoldElements>,
    contributions: Contributions,
    /// Bytes of a contribution.
    length: usize,
    cut: Cut,
    /// The rows of the root and of this rank.
    root: usize,
    own: usize,
    /// This rank gets the result.
    is_wanted: bool,
    /// Ranks share the work: the root has memory for the common result.
    is_shared: bool,
    /// Another rank may need what this one combines.
    is_needed: bool,
    progress: Mutex<Progress>,
}

/// A vector in chunks of whole elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    length: usize,
    chunk: usize,
}

#[derive(Default)]
struct Progress {
    /// Memory in which this rank combines; in the end its result.
    memory: Option<Box<dyn Elements>>,
    /// This rank's contribution is in it.
    holds_own: bool,
    /// The chunks of the result that are in it.
    has: Vec<bool>,
    /// All of the result is in it.
    is_whole: bool,
    /// Memory for a chunk that others need, if there is no other.
    chunk: Option<Box<dyn Elements>>,
    /// Memory for a block of contributions.
    block: Option<Box<dyn Elements>>,
    /// All chunks were claimed, and nothing has come since then.
    waits_since: Option<Instant>,
    error: Option<FoldError>,
}

/// The outcome of some work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// There may be more to do.
    Done,
    /// The rest is for others. If it has not come by then it is to be done here.
    Waits(Instant),
    /// Another thread of this rank works on the call.
    Busy,
}

/// Chunks of others that are waited for.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct Awaited {
    pub(super) number: u64,
    pub(super) count: u32,
    /// When to look again in any case.
    pub(super) until: Instant,
}

impl LongCall {
    /// The work on a call with this signature, of the rank in the row `own`.
    pub(super) fn new(
        number: u64,
        signature: &Signature,
        fold: Arc<dyn FoldElements>,
        (root, own): (usize, usize),
        ranks: usize,
        is_block: bool,
    ) -> Self {
        let length = signature.length.unwrap_or_default() as usize;
        // The members of a block go on with blocks of their own.
        let is_shared = matches!(signature.contributions, Contributions::Each) && ranks > 2 && !is_block;
        Self {
            number,
            cut: Cut::new(length, ranks, &*fold),
            fold,
            contributions: signature.contributions,
            length,
            root,
            own,
            is_wanted: signature.is_spread || root == own,
            is_shared,
            is_needed: is_shared && (signature.is_spread || root != own),
            progress: Mutex::default(),
        }
    }

    /// The chunks of the call, for who waits for them.
    pub(super) fn awaited(&self, until: Instant) -> Awaited {
        Awaited {
            number: self.number,
            count: self.cut.count(),
            until,
        }
    }

    /// Bytes of a contribution.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Says if this rank has the memory for the common result.
    pub(super) fn has_common_result(&self) -> bool {
        self.is_shared && self.root == self.own
    }

    /// Takes memory with this rank's contribution, which is posted, for the result.
    pub(super) fn lend(&self, mut memory: Box<dyn Elements>) {
        let is_of_use = self.is_wanted || self.is_shared;
        if is_of_use
            && memory.bytes_mut().len() == self.length
            && let Some(mut progress) = self.try_lock()
            && progress.memory.is_none()
        {
            progress.memory = Some(memory);
            progress.holds_own = true;
        }
    }

    /// Says if no thread of this rank works on the call.
    pub(super) fn is_idle(&self) -> bool {
        self.try_lock().is_some()
    }

    /// Says if nothing is left to do for a rank that does not get the result.
    pub(super) fn is_done(&self, table: &CallTable) -> bool {
        let has_failed = || self.try_lock().is_some_and(|progress| progress.error.is_some());
        !self.is_shared || table.are_chunks_finished(self.number, self.cut.count()) || has_failed()
    }

    /// The result for this rank, if it is whole.
    pub(super) fn take_result(&self) -> Option<Result<ResultMemory, FoldError>> {
        let mut progress = self.try_lock()?;
        if let Some(error) = progress.error.take() {
            return Some(Err(error));
        }
        let result = match progress.is_whole {
            true => progress.memory.take()?,
            false => return None,
        };
        Some(Ok(ResultMemory::Elements(result)))
    }

    /// Combines at most so many chunks.
    pub(super) fn work(&self, table: &CallTable, most: usize, patience: Duration) -> Work {
        let Some(mut progress) = self.try_lock() else {
            return Work::Busy;
        };
        let done = match self.contributions {
            _ if self.is_shared => self.share(&mut progress, table, most, patience),
            Contributions::Each | Contributions::Shared(_) => self.combine_alone(&mut progress, table),
            Contributions::One(Member(row)) => self.copy(&mut progress, table, &[row as usize]),
            Contributions::SideBySide => {
                let rows = Vec::from_iter(0..table.rows());
                self.copy(&mut progress, table, &rows)
            }
        };
        done.unwrap_or_else(|error| {
            progress.error = Some(error);
            Work::Done
        })
    }

    /// The contributions of these ranks, one after the other, are the result.
    fn copy(&self, progress: &mut Progress, table: &CallTable, rows: &[usize]) -> Result<Work, FoldError> {
        if !self.is_wanted || progress.is_whole {
            return Ok(Work::Done);
        }
        let memory = progress.memory.take().filter(|_| rows.len() == 1);
        let has_result = memory.is_some() && progress.holds_own && rows == [self.own];
        let mut result = memory.unwrap_or_else(|| self.fold.result(self.length * rows.len()));
        let blocks = result.bytes_mut().chunks_mut(self.length);
        for (&row, into) in rows.iter().zip(blocks).filter(|_| !has_result) {
            into.copy_from_slice(self.data(table, row)?);
        }
        progress.memory = Some(result);
        progress.is_whole = true;
        Ok(Work::Done)
    }

    /// Combines all contributions, if this rank gets the result.
    fn combine_alone(&self, progress: &mut Progress, table: &CallTable) -> Result<Work, FoldError> {
        if !self.is_wanted || progress.is_whole {
            return Ok(Work::Done);
        }
        let holds_own = progress.holds_own;
        let memory = progress
            .memory
            .get_or_insert_with(|| self.fold.result(self.length));
        for chunk in 0..self.cut.count() {
            let range = self.cut.range(chunk);
            let into = &mut memory.bytes_mut()[range.clone()];
            self.fold_chunk(table, range, into, holds_own, &mut progress.block)?;
        }
        progress.is_whole = true;
        Ok(Work::Done)
    }

    fn share(
        &self,
        progress: &mut Progress,
        table: &CallTable,
        most: usize,
        patience: Duration,
    ) -> Result<Work, FoldError> {
        let count = self.cut.count();
        if self.is_wanted && progress.has.is_empty() {
            progress
                .memory
                .get_or_insert_with(|| self.fold.result(self.length));
            progress.has = vec![false; count as usize];
        }
        for _ in 0..most {
            let Some(chunk) = table.claim(self.number, count) else {
                return self.take_finished(progress, table, patience);
            };
            self.combine(progress, table, chunk)?;
        }
        Ok(Work::Done)
    }

    /// Takes what others have finished. Does the work of one that does not finish.
    fn take_finished(
        &self,
        progress: &mut Progress,
        table: &CallTable,
        patience: Duration,
    ) -> Result<Work, FoldError> {
        let count = self.cut.count();
        let mut first_unfinished = None;
        for chunk in 0..count {
            if progress.has.get(chunk as usize) == Some(&true) {
                continue;
            }
            match table.is_chunk_finished(self.number, chunk) {
                true if self.is_wanted => {
                    self.take(progress, table, chunk)?;
                    progress.waits_since = None;
                }
                true => {}
                false => first_unfinished = first_unfinished.or(Some(chunk)),
            }
        }
        let Some(unfinished) = first_unfinished else {
            progress.is_whole = true;
            return Ok(Work::Done);
        };
        let now = Instant::now();
        let until = *progress.waits_since.get_or_insert(now) + patience;
        if now < until {
            return Ok(Work::Waits(until));
        }
        self.combine(progress, table, unfinished)?;
        Ok(Work::Done)
    }

    /// Copies a chunk of another rank.
    fn take(&self, progress: &mut Progress, table: &CallTable, chunk: u32) -> Result<(), FoldError> {
        let range = self.cut.range(chunk);
        let missing = FoldError::Elements {
            left: self.length,
            right: 0,
        };
        let (Some(common), Some(result)) = (table.result(self.root, self.number), progress.memory.as_mut())
        else {
            return Err(missing);
        };
        if common.length() < self.length {
            return Err(missing);
        }
        common.read(range.start, &mut result.bytes_mut()[range]);
        progress.has[chunk as usize] = true;
        Ok(())
    }

    /// Combines a chunk, for this rank and those that need it.
    fn combine(&self, progress: &mut Progress, table: &CallTable, chunk: u32) -> Result<(), FoldError> {
        let range = self.cut.range(chunk);
        let into = match progress.memory.as_mut() {
            Some(memory) => &mut memory.bytes_mut()[range.clone()],
            None => &mut memory_in(&mut progress.chunk, &*self.fold, self.cut.chunk)[..range.len()],
        };
        let holds_own = progress.holds_own;
        self.fold_chunk(table, range.clone(), into, holds_own, &mut progress.block)?;
        if self.is_needed {
            let common = table.result(self.root, self.number);
            let common = common.filter(|common| common.length() >= self.length);
            let common = common.ok_or(FoldError::Elements {
                left: self.length,
                right: 0,
            })?;
            common.write(range.start, into);
        }
        if let Some(has) = progress.has.get_mut(chunk as usize) {
            *has = true;
        }
        table.finish_chunk(self.number, chunk, self.cut.count());
        Ok(())
    }

    /// Combines a chunk in the brackets of an ordered reduction.
    fn fold_chunk(
        &self,
        table: &CallTable,
        range: Range<usize>,
        into: &mut [u8],
        holds_own: bool,
        memory: &mut Option<Box<dyn Elements>>,
    ) -> Result<(), FoldError> {
        let rows = table.rows();
        let length = block_of(rows);
        self.fold_block(table, range.clone(), 0..rows.min(length), into, holds_own)?;
        for begin in (length..rows).step_by(length) {
            let block = &mut memory_in(memory, &*self.fold, self.cut.chunk)[..range.len()];
            self.fold_block(
                table,
                range.clone(),
                begin..rows.min(begin + length),
                block,
                false,
            )?;
            self.fold.fold(into, block, Side::Right)?;
        }
        Ok(())
    }

    /// Combines a chunk of these ranks from left to right. That of this rank may stand there already.
    fn fold_block(
        &self,
        table: &CallTable,
        range: Range<usize>,
        mut rows: Range<usize>,
        into: &mut [u8],
        holds_own: bool,
    ) -> Result<(), FoldError> {
        let own = self.own;
        let part = |row| self.data(table, row).map(|data| &data[range.clone()]);
        if holds_own && rows.len() == 2 && rows.start + 1 == own {
            return self.fold.fold(into, part(rows.start)?, Side::Left);
        }
        match rows.next() {
            Some(first) if !holds_own || first != own => into.copy_from_slice(part(first)?),
            _ => {}
        }
        rows.try_for_each(|row| self.fold.fold(into, part(row)?, Side::Right))
    }

    /// The contribution of a rank.
    fn data<'a>(&self, table: &'a CallTable, row: usize) -> Result<&'a [u8], FoldError> {
        let data = table.data(row, self.number);
        match data.len() == self.length {
            true => Ok(data),
            false => Err(FoldError::Elements {
                left: self.length,
                right: data.len(),
            }),
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Progress>> {
        match self.progress.try_lock() {
            Ok(progress) => Some(progress),
            // A thread that panicked has not noted what it had not done.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn memory_in<'a>(
    place: &'a mut Option<Box<dyn Elements>>,
    fold: &dyn FoldElements,
    length: usize,
) -> &'a mut [u8] {
    place.get_or_insert_with(|| fold.result(length)).bytes_mut()
}

impl Awaited {
    /// Says if all chunks have come.
    pub(super) fn is_over(&self, table: &CallTable) -> bool {
        table.are_chunks_finished(self.number, self.count)
    }
}

impl Cut {
    fn new(length: usize, ranks: usize, fold: &dyn FoldElements) -> Self {
        let even = length / (ranks * CHUNKS_PER_RANK).max(1);
        let mut bytes = even.clamp(CHUNK_MIN, CHUNK_MAX);
        let mut chunk = fold.whole(bytes);
        while length.div_ceil(chunk) > CallTable::CHUNKS_MAX {
            bytes *= 2;
            chunk = fold.whole(bytes);
        }
        Self { length, chunk }
    }

    fn count(self) -> u32 {
        self.length.div_ceil(self.chunk) as u32
    }

    fn range(self, chunk: u32) -> Range<usize> {
        let begin = chunk as usize * self.chunk;
        begin..self.length.min(begin + self.chunk)
    }
}

impl fmt::Debug for LongCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LongCall")
            .field("number", &self.number)
            .field("cut", &self.cut)
            .finish_non_exhaustive()
    }
}

/// So many chunks each rank claims on average: one that is slow holds up the others for one of them.
const CHUNKS_PER_RANK: usize = 4;
/// Below that the claim costs as much as the work.
const CHUNK_MIN: usize = 16 << 10;
/// A chunk of that size is still in the cache when it is copied.
const CHUNK_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests;
