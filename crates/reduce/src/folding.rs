//! The combination of operands in memory.

use std::{
    any::Any,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::{Bytes, BytesMut};
use ropewalk_fabric::Buffer;

use crate::operation::{Fold, FoldElements, FoldError, Side};

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
}

impl Operand {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Free(bytes) => bytes,
        }
    }

    fn into_free(self) -> Memory {
        match self {
            Self::Kept(bytes) => Memory::from(&bytes[..]),
            Self::Free(bytes) => bytes,
        }
    }
}

/// Folds operands from left to right.
///
/// # Errors
/// If the operation fails or panics: that must cost its reduction, not the whole process.
pub(crate) fn fold(fold: &Fold, operands: Vec<Operand>) -> Result<Memory, FoldError> {
    guarded(|| match fold {
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
    guarded(|| {
        let mut operands = operands.iter();
        if !is_begun && let Some(first) = operands.next() {
            let first = first.bytes();
            let (left, right) = (part.len(), first.len());
            if left != right {
                return Err(FoldError::Elements { left, right });
            }
            part.copy_from_slice(first);
        }
        for operand in operands {
            elements.fold(part, operand.bytes(), Side::Right)?;
        }
        Ok(())
    })
}

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

    fn elements() -> std::sync::Arc<dyn FoldElements> {
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
