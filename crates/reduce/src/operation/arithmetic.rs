//! The operations that need arithmetic.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;

use super::reducers;

/// The sum of each element (`MPI_SUM`, MPI standard 4.0, section 6.9.2). Integers wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum;

/// The product of each element (`MPI_PROD`). Integers wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prod;

/// A number that [`Sum`] and [`Prod`] combine: an integer, a float of 16 to 64 bits, or a complex number.
///
/// Numbers of 16 bits ([`half::f16`], [`half::bf16`]) are rounded to 16 bits after each combination. The sum of many
/// of them is more exact if the program converts them to `f32` first.
///
/// # Examples
/// ```
/// use half::f16;
/// use num_complex::Complex;
/// use ropewalk_reduce::{Prod, Sum, ordered_fold};
///
/// let product = ordered_fold(vec![vec![Complex::new(0.0_f32, 1.0)]; 2], Prod)?;
/// assert_eq!(product, Some(vec![Complex::new(-1.0, 0.0)]));
/// // 2049 has no place in a number of 16 bits.
/// let sum = ordered_fold(vec![vec![f16::from_f32(2048.0)], vec![f16::ONE]], Sum)?;
/// assert_eq!(sum, Some(vec![f16::from_f32(2048.0)]));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
pub trait Number: Pod + Send + Sync {
    /// Both operations never panic, and depend on nothing but their operands. Short vectors of such numbers take the
    /// fastest way, on which every rank combines all of them.
    const IS_TOTAL: bool = false;

    /// The sum; integers wrap around.
    #[must_use]
    fn sum(self, other: Self) -> Self;
    /// The product; integers wrap around.
    #[must_use]
    fn product(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Number for $integer {
            const IS_TOTAL: bool = true;

            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }

macro_rules! others {
    ($($number:ty)*) => {$(
        impl Number for $number {
            const IS_TOTAL: bool = true;

            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }
        }
    )*};
}

others! { bf16 f16 f32 f64 Complex<f32> Complex<f64> }

reducers! { Number;
    Prod, "prod", product;
    Sum, "sum", sum;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ordered_fold;

    /// Folds of one element a rank.
    fn sum_of<T: Number>(terms: &[T]) -> T {
        let vectors = terms.iter().map(|&term| vec![term]).collect();
        ordered_fold(vectors, Sum).unwrap().unwrap()[0]
    }

    proptest! {
        /// Sums of short floats are rounded to 16 bits after each combination, as a plain loop does.
        #[test]
        fn short_floats_are_rounded_each_time(terms in prop::collection::vec(-1e4f32..1e4, 1..8)) {
            let short: Vec<f16> = terms.iter().copied().map(f16::from_f32).collect();
            let expected = short[1..].iter().fold(short[0], |sum, &term| {
                f16::from_f32(sum.to_f32() + term.to_f32())
            });
            prop_assert_eq!(sum_of(&short), expected);
            let brain: Vec<bf16> = terms.iter().copied().map(bf16::from_f32).collect();
            let expected = brain[1..].iter().fold(brain[0], |sum, &term| {
                bf16::from_f32(sum.to_f32() + term.to_f32())
            });
            prop_assert_eq!(sum_of(&brain), expected);
        }

        /// Complex numbers are multiplied by the rule, and added by their parts.
        #[test]
        fn complex_numbers_are_combined(parts in prop::array::uniform4(-1e3f64..1e3)) {
            let [a, b, c, d] = parts;
            let (left, right) = (Complex::new(a, b), Complex::new(c, d));
            prop_assert_eq!(left.sum(right), Complex::new(a + c, b + d));
            prop_assert_eq!(left.product(right), Complex::new(a * c - b * d, a * d + b * c));
        }
    }
}
