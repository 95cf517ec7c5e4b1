//! The logical and the bitwise operations.

use std::ops::{BitAnd, BitOr, BitXor};

use bytemuck::Pod;

use super::{Bool, reducers};

/// 1 if both elements are true, and otherwise 0 (`MPI_LAND`, `numpy.logical_and`). An integer is true unless it is 0.
///
/// # Examples
/// ```
/// use ropewalk_reduce::{BitwiseAnd, LogicalAnd, ordered_fold};
///
/// let vectors = vec![vec![6_i32, 6], vec![1, 0]];
/// assert_eq!(ordered_fold(vectors.clone(), LogicalAnd)?, Some(vec![1, 0]));
/// assert_eq!(ordered_fold(vectors, BitwiseAnd)?, Some(vec![0, 0]));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalAnd;

/// 1 if one of the elements is true, and otherwise 0 (`MPI_LOR`, `numpy.logical_or`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalOr;

/// 1 if an odd number of the elements is true, and otherwise 0 (`MPI_LXOR`, `numpy.logical_xor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogicalXor;

/// The bits that are set in all elements (`MPI_BAND`, `numpy.bitwise_and`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitwiseAnd;

/// The bits that are set in one of the elements (`MPI_BOR`, `numpy.bitwise_or`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitwiseOr;

/// The bits that are set in an odd number of the elements (`MPI_BXOR`, `numpy.bitwise_xor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitwiseXor;

/// A value that the logical and the bitwise operations combine: an integer, or a [`Bool`].
pub trait Bits:
    Pod + Send + Sync + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    /// All operations never panic, and depend on nothing but their operands. Short vectors of such values take the
    /// fastest way, on which every rank combines all of them.
    const IS_TOTAL: bool = false;

    /// Says if it is true: if it is not 0.
    fn is_true(self) -> bool;
    /// 1 or 0.
    #[must_use]
    fn from_truth(is_true: bool) -> Self;

    /// 1 if both are true.
    #[must_use]
    fn logical_and(self, other: Self) -> Self {
        Self::from_truth(self.is_true() & other.is_true())
    }

    /// 1 if one of them is true.
    #[must_use]
    fn logical_or(self, other: Self) -> Self {
        Self::from_truth(self.is_true() | other.is_true())
    }

    /// 1 if exactly one of them is true.
    #[must_use]
    fn logical_xor(self, other: Self) -> Self {
        Self::from_truth(self.is_true() ^ other.is_true())
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Bits for $integer {
            const IS_TOTAL: bool = true;

            fn is_true(self) -> bool {
                self != 0
            }

            fn from_truth(is_true: bool) -> Self {
                Self::from(is_true)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }

impl Bits for Bool {
    const IS_TOTAL: bool = true;

    fn is_true(self) -> bool {
        self.into()
    }

    fn from_truth(is_true: bool) -> Self {
        is_true.into()
    }
}

reducers! { Bits;
    BitwiseAnd, "band", bitand;
    BitwiseOr, "bor", bitor;
    BitwiseXor, "bxor", bitxor;
    LogicalAnd, "land", logical_and;
    LogicalOr, "lor", logical_or;
    LogicalXor, "lxor", logical_xor;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Reducer, ordered_fold};

    fn folded<T: Bits>(terms: &[T], operation: impl Reducer<Vec<T>>) -> T {
        let vectors = terms.iter().map(|&term| vec![term]).collect();
        ordered_fold(vectors, operation).unwrap().unwrap()[0]
    }

    /// Half of the numbers are false, so that each operation has both outcomes.
    fn numbers() -> impl Strategy<Value = Vec<i16>> {
        prop::collection::vec(prop_oneof![Just(0), any::<i16>()], 2..6)
    }

    proptest! {
        /// Logical operations give what a plain loop over the truth of the elements gives, as 1 or 0.
        #[test]
        fn logical_operations_are_those_of_truths(numbers in numbers()) {
            let truths: Vec<bool> = numbers.iter().map(|&number| number != 0).collect();
            let bools: Vec<Bool> = truths.iter().copied().map(Bool::from).collect();
            let all = truths.iter().all(|&truth| truth);
            let one = truths.iter().any(|&truth| truth);
            let odd = truths.iter().filter(|&&truth| truth).count() % 2 == 1;
            prop_assert_eq!(folded(&numbers, LogicalAnd), i16::from(all));
            prop_assert_eq!(folded(&numbers, LogicalOr), i16::from(one));
            prop_assert_eq!(folded(&numbers, LogicalXor), i16::from(odd));
            prop_assert_eq!(folded(&bools, LogicalAnd), all.into());
            prop_assert_eq!(folded(&bools, LogicalOr), one.into());
            prop_assert_eq!(folded(&bools, LogicalXor), odd.into());
            prop_assert_eq!(folded(&bools, BitwiseAnd), all.into());
            prop_assert_eq!(folded(&bools, BitwiseOr), one.into());
            prop_assert_eq!(folded(&bools, BitwiseXor), odd.into());
        }

        /// Bitwise operations give what a loop over the single bits gives.
        #[test]
        fn bitwise_operations_are_those_of_bits(numbers in numbers()) {
            let (mut all, mut one, mut odd) = (0_i16, 0_i16, 0_i16);
            for bit in 0..16 {
                let set = numbers.iter().filter(|&&number| number >> bit & 1 == 1).count();
                all |= i16::from(set == numbers.len()) << bit;
                one |= i16::from(set > 0) << bit;
                odd |= i16::from(set % 2 == 1) << bit;
            }
            prop_assert_eq!(folded(&numbers, BitwiseAnd), all);
            prop_assert_eq!(folded(&numbers, BitwiseOr), one);
            prop_assert_eq!(folded(&numbers, BitwiseXor), odd);
        }
    }

    /// Bytes that are neither 0 nor 1 are true, and outcomes are 0 or 1.
    #[test]
    fn foreign_truth_values_are_true() {
        let foreign: Bool = bytemuck::cast(2_u8);
        let one = Bool::from(true);
        assert_eq!(folded(&[foreign, one], BitwiseAnd), one);
        assert_eq!(folded(&[foreign, one], BitwiseXor), Bool::from(false));
        assert_eq!(folded(&[foreign, foreign], LogicalOr), one);
    }
}
