//! The combination of operands in memory.

use std::{
    any::Any,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use ropewalk_fabric::Buffer;

use crate::{
    operation::{Fold, FoldElements, FoldError, Side},
    source::Source,
};

/// Memory that can be written: as aligned as any element, from the heap or from what a provider shares with others.
#[derive(Debug)]
pub(crate) enum Memory {
    Heap(BytesMut),
    Shared(Buffer),
}

impl Memory {
    /// Ends the writing.
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Self::Heap(bytes) => bytes.freeze(),
            Self::Shared(buffer) => Bytes::from_owner(buffer),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(BytesMut::new())
    }
}

impl From<&[u8]> for Memory {
    fn from(bytes: &[u8]) -> Self {
        Self::Heap(BytesMut::from(bytes))
    }
}

impl From<Bytes> for Memory {
    fn from(bytes: Bytes) -> Self {
        match bytes.try_into_mut() {
            Ok(bytes) => Self::Heap(bytes),
            Err(bytes) => Self::from(&bytes[..]),
        }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Shared(buffer) => buffer,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Shared(buffer) => buffer,
        }
    }
}

/// An operand of a fold.
#[derive(Debug)]
pub(crate) enum Operand {
    /// Memory that others may read: it stays as it is.
    Kept(Bytes),
    /// Memory for which nobody else has a use: it may take the outcome.
    Free(Memory),
    /// A part of a source, which is still to be read.
    Unread(Unread),
}

/// The bytes of a source from an offset on.
pub(crate) struct Unread {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

impl Unread {
    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), FoldError> {
        let read = self.source.read(self.offset + from as u64, into);
        read.map_err(FoldError::Source)
    }

    /// Uses the bytes where they are, or reads them into `scratch` for that.
    fn with<R>(
        &self,
        from: usize,
        scratch: &mut [u8],
        mut borrower: impl FnMut(&[u8]) -> R,
    ) -> Result<R, FoldError> {
        let mut returned = None;
        let lent = self
            .source
            .lend(self.offset + from as u64, scratch.len(), &mut |bytes| {
                returned = Some(borrower(bytes))
            });
        lent.map_err(FoldError::Source)?;
        match returned {
            Some(returned) => Ok(returned),
            None => {
                self.read(from, scratch)?;
                Ok(borrower(scratch))
            }
        }
    }

    fn read_all(&self) -> Result<Memory, FoldError> {
        let mut memory = BytesMut::zeroed(self.length);
        self.read(0, &mut memory)?;
        Ok(Memory::Heap(memory))
    }
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unread({} bytes from {})", self.length, self.offset)
    }
}

impl Operand {
    /// The bytes, read if need be.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn read(self) -> Result<Self, FoldError> {
        match self {
            Self::Unread(unread) => Ok(Self::Free(guarded(|| unread.read_all())?)),
            read => Ok(read),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Free(bytes) => bytes,
            Self::Unread(_) => &[],
        }
    }

    pub(crate) fn into_free(self) -> Memory {
        match self {
            Self::Kept(bytes) => Memory::from(&bytes[..]),
            Self::Free(bytes) => bytes,
            // Nobody has folded it by then: sources are vectors, and those are read block by block.
            Self::Unread(_) => Memory::default(),
        }
    }

    fn is_unread(&self) -> bool {
        matches!(self, Self::Unread(_))
    }
}

/// Folds operands from left to right.
///
/// # Errors
/// If the operation fails or panics: that must cost its reduction, not the whole process.
pub(crate) fn fold(fold: &Fold, operands: Vec<Operand>) -> Result<Memory, FoldError> {
    guarded(|| match fold {
        Fold::Elements(elements) if operands.iter().any(Operand::is_unread) => {
            fold_unread(&**elements, operands)
        }
        Fold::Elements(elements) => {
            let mut operands = operands.into_iter();
            let (Some(first), second) = (operands.next(), operands.next()) else {
                return Ok(Memory::default());
            };
            // The outcome takes the place of the second operand if that of the first is in use.
            let mut outcome = match (first, second) {
                (first, None) => first.into_free(),
                (first @ Operand::Kept(_), Some(Operand::Free(mut second))) => {
                    elements.fold(&mut second, first.bytes(), Side::Left)?;
                    second
                }
                (first, Some(second)) => {
                    let mut first = first.into_free();
                    elements.fold(&mut first, second.bytes(), Side::Right)?;
                    first
                }
            };
            for operand in operands {
                elements.fold(&mut outcome, operand.bytes(), Side::Right)?;
            }
            Ok(outcome)
        }
        Fold::Objects(objects) => {
            let mut operands = operands.into_iter();
            let first = operands.next().map_or_else(Memory::default, Operand::into_free);
            operands.try_fold(first, |left, right| {
                let outcome = objects.fold(&left, right.bytes())?;
                Ok(Memory::from(&outcome[..]))
            })
        }
    })
}

/// Folds operands, some of which are still to be read, into memory of the first one.
fn fold_unread(elements: &dyn FoldElements, operands: Vec<Operand>) -> Result<Memory, FoldError> {
    let mut operands = operands.into_iter();
    let Some(first) = operands.next() else {
        return Ok(Memory::default());
    };
    let rest: Vec<Operand> = operands.collect();
    let (mut outcome, operands, is_begun) = match first {
        Operand::Unread(unread) => {
            let outcome = Memory::Heap(BytesMut::zeroed(unread.length));
            let operands = std::iter::once(Operand::Unread(unread)).chain(rest).collect();
            (outcome, operands, false)
        }
        first => (first.into_free(), rest, true),
    };
    fold_blocks(elements, &mut outcome, is_begun, &operands)?;
    Ok(outcome)
}

/// Folds operands from left to right into a part of a vector; `is_begun` says that this part is the first operand.
///
/// # Errors
/// If the operation fails or panics.
pub(crate) fn fold_into(
    elements: &dyn FoldElements,
    part: &mut [u8],
    is_begun: bool,
    operands: &[Operand],
) -> Result<(), FoldError> {
    guarded(|| fold_blocks(elements, part, is_begun, operands))
}

/// Folds block by block, so that what was folded, and what was read of a source, are in the processor's cache when the
/// next operand comes.
fn fold_blocks(
    elements: &dyn FoldElements,
    part: &mut [u8],
    is_begun: bool,
    operands: &[Operand],
) -> Result<(), FoldError> {
    let length = part.len();
    for operand in operands {
        let right = match operand {
            Operand::Unread(unread) => unread.length,
            operand => operand.bytes().len(),
        };
        if right != length {
            return Err(FoldError::Elements { left: length, right });
        }
    }
    let is_unread = operands.iter().any(Operand::is_unread);
    let block = elements.whole(BLOCK_BYTES);
    let mut read = BytesMut::zeroed(if is_unread { block.min(length) } else { 0 });
    let mut begin = 0;
    while begin < length {
        let end = length.min(begin + block);
        let into = &mut part[begin..end];
        for (at, operand) in operands.iter().enumerate() {
            let is_first = at == 0 && !is_begun;
            match operand {
                Operand::Unread(unread) if is_first => unread.read(begin, into)?,
                Operand::Unread(unread) => {
                    let scratch = &mut read[..end - begin];
                    unread.with(begin, scratch, |bytes| elements.fold(into, bytes, Side::Right))??;
                }
                operand if is_first => into.copy_from_slice(&operand.bytes()[begin..end]),
                operand => elements.fold(into, &operand.bytes()[begin..end], Side::Right)?,
            }
        }
        begin = end;
    }
    Ok(())
}

/// Bytes of each operand that are folded at once: two of them fit into a processor's second cache.
const BLOCK_BYTES: usize = 128 << 10;

fn guarded<T>(run: impl FnOnce() -> Result<T, FoldError>) -> Result<T, FoldError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(FoldError::Panicked(message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Reducer, elementwise};

    /// Digits behind each other: neither commutative nor, in other brackets, the same.
    fn append() -> Fold {
        let append = elementwise("append", |left: u64, right: u64| left * 10 + right);
        append.into_operation().fold
    }

    fn elements() -> Arc<dyn FoldElements> {
        match append() {
            Fold::Elements(elements) => elements,
            Fold::Objects(_) => unreachable!("numbers are elements"),
        }
    }

    fn operand(digit: u64, is_free: bool) -> Operand {
        let bytes = digit.to_ne_bytes();
        match is_free {
            true => Operand::Free(Memory::from(&bytes[..])),
            false => Operand::Kept(Bytes::copy_from_slice(&bytes)),
        }
    }

    /// Whichever operands are free, they are folded from left to right.
    #[test]
    fn operands_are_folded_from_left_to_right() {
        for free in 0..8 {
            let operands = |count: u64| {
                (0..count)
                    .map(|at| operand(at + 1, free >> at & 1 == 1))
                    .collect()
            };
            for (count, expected) in [(1, 1_u64), (2, 12), (3, 123)] {
                let outcome = fold(&append(), operands(count)).unwrap();
                assert_eq!(
                    outcome[..],
                    expected.to_ne_bytes(),
                    "{count} operands, {free:b} free"
                );
            }
            let mut part = 9_u64.to_ne_bytes();
            fold_into(&*elements(), &mut part, true, &operands(2)).unwrap();
            assert_eq!(part, 912_u64.to_ne_bytes());
            fold_into(&*elements(), &mut part, false, &operands(2)).unwrap();
            assert_eq!(part, 12_u64.to_ne_bytes());
        }
    }

    /// A panic and operands of other lengths are errors.
    #[test]
    fn failures_are_errors() {
        let faulty = elementwise("faulty", |_: u64, _: u64| -> u64 { panic!("seven") });
        let faulty: crate::operation::Operation<Vec<u64>> = faulty;
        let operands = vec![operand(1, true), operand(2, false)];
        let error = fold(&faulty.fold, operands).unwrap_err();
        assert_eq!(error.to_string(), "it panicked: seven");
        let short = Operand::Kept(Bytes::from_static(&[1, 2, 3]));
        assert!(fold(&append(), vec![operand(1, true), short]).is_err());
        let short = Operand::Kept(Bytes::from_static(&[1, 2, 3]));
        assert!(fold_into(&*elements(), &mut [0; 8], false, &[short]).is_err());
    }
}
