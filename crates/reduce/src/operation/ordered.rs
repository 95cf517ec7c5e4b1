//! The operations that need an order.

use bytemuck::Pod;
use half::{bf16, f16};

use super::{Bool, reducers};

/// The smallest of each element (`MPI_MIN`). If one is NaN the result is NaN, as in NumPy; -0 is below +0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Min;

/// The largest of each element (`MPI_MAX`). If one is NaN the result is NaN, as in NumPy; +0 is above -0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Max;

/// A value of which one can be the smallest or the largest: an integer, a float of 16 to 64 bits, or a [`Bool`], of
/// which false is the smaller one. Complex numbers have no order.
pub trait Ordered: Pod + PartialOrd + Send + Sync {
    /// Both operations and the comparison never panic, and depend on nothing but their operands. Short vectors of such
    /// values take the fastest way, on which every rank combines all of them.
    const IS_TOTAL: bool = false;

    /// The smaller one; NaN if there is one.
    #[must_use]
    fn smaller(self, other: Self) -> Self;
    /// The larger one; NaN if there is one.
    #[must_use]
    fn larger(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Ordered for $integer {
            const IS_TOTAL: bool = true;

            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            fn larger(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl Ordered for $float {
            const IS_TOTAL: bool = true;

            fn smaller(self, other: Self) -> Self {
                let other_is_smaller = other < self || (other == self && other.is_sign_negative());
                if self.is_nan() || !(other_is_smaller || other.is_nan()) { self } else { other }
            }

            fn larger(self, other: Self) -> Self {
                let other_is_larger = other > self || (other == self && other.is_sign_positive());
                if self.is_nan() || !(other_is_larger || other.is_nan()) { self } else { other }
            }
        }
    )*};
}

floats! { bf16 f16 f32 f64 }

impl Ordered for Bool {
    const IS_TOTAL: bool = true;

    fn smaller(self, other: Self) -> Self {
        self & other
    }

    fn larger(self, other: Self) -> Self {
        self | other
    }
}

reducers! { Ordered;
    Max, "max", larger;
    Min, "min", smaller;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every pair of floats has one smaller and one larger, whichever comes first, and NaN wins.
    #[test]
    fn minimum_and_maximum_do_not_depend_on_order() {
        let values = [-1.0f32, -0.0, 0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY];
        for a in values {
            for b in values {
                assert_eq!(a.smaller(b).to_bits(), b.smaller(a).to_bits());
                assert_eq!(a.larger(b).to_bits(), b.larger(a).to_bits());
            }
            assert!(a.smaller(f32::NAN).is_nan() && f32::NAN.smaller(a).is_nan());
            assert!(a.larger(f32::NAN).is_nan() && f32::NAN.larger(a).is_nan());
        }
        assert!(f16::ONE.smaller(f16::NAN).is_nan() && bf16::NAN.larger(bf16::ONE).is_nan());
        assert!((-0.0f32).larger(0.0).is_sign_positive() && 0.0f32.smaller(-0.0).is_sign_negative());
    }

    proptest! {
        /// Of ordinary floats the smaller is the standard library's.
        #[test]
        fn ordinary_floats_compare_as_usual(a in -1e9f64..1e9, b in -1e9f64..1e9) {
            prop_assert_eq!(a.smaller(b), a.min(b));
            prop_assert_eq!(a.larger(b), a.max(b));
            let (a, b) = (f16::from_f64(a), f16::from_f64(b));
            prop_assert_eq!(a.smaller(b), if b < a { b } else { a });
            prop_assert_eq!(a.larger(b), if b > a { b } else { a });
        }
    }
}
