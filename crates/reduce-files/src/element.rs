//! Elements as NumPy's functions treat them.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;

/// A type of elements with NumPy's arithmetic.
///
/// Of equal numbers, as the two zeros are, `larger` and `smaller` take the one that `np.maximum` and `np.minimum` take
/// on x86-64: the last `f32`, `f64` and `bf16`, the first `f16` and complex number. So the files' order decides, and
/// the brackets in which they are combined do not.
pub(super) trait Element: Pod + Send + Sync {
    /// The sum; integers wrap around.
    fn sum(self, other: Self) -> Self;
    /// The product; integers wrap around.
    fn product(self, other: Self) -> Self;
    /// The larger one; the first NaN if there is one.
    fn larger(self, other: Self) -> Self;
    /// The smaller one; the first NaN if there is one.
    fn smaller(self, other: Self) -> Self;
    /// Says if it is not zero; NaN is not.
    fn is_true(self) -> bool;
}

/// An element of which a mean is computed in another type.
pub(super) trait MeanTerm<T>: Element {
    /// The element as a term of the sum.
    fn term(self) -> T;
}

/// A type in which a mean is computed.
pub(super) trait Mean: Element {
    /// The mean of so many terms of which this is the sum.
    fn mean(self, terms: u32) -> Self;
}

/// A type of which a mean is computed as `f32`.
pub(super) trait Narrow: Element {
    /// The nearest of these numbers.
    fn narrow(number: f32) -> Self;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Element for $integer {
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            fn is_true(self) -> bool {
                self != 0
            }
        }

        impl MeanTerm<f64> for $integer {
            fn term(self) -> f64 {
                self as f64
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! floats {
    ($($float:ty, $zero:expr, $larger_if:tt, $smaller_if:tt;)*) => {$(
        impl Element for $float {
            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            fn larger(self, other: Self) -> Self {
                // Without a branch, so that it becomes vector instructions.
                if (self $larger_if other) | self.is_nan() { self } else { other }
            }

            fn smaller(self, other: Self) -> Self {
                if (self $smaller_if other) | self.is_nan() { self } else { other }
            }

            fn is_true(self) -> bool {
                self != $zero
            }
        }
    )*};
}

floats! {
    f32, 0.0, >, <;
    f64, 0.0, >, <;
    bf16, bf16::ZERO, >, <;
    f16, f16::ZERO, >=, <=;
}

macro_rules! complex {
    ($($float:ty)*) => {$(
        impl Element for Complex<$float> {
            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            /// By the real part, and by the imaginary part if those are equal.
            fn larger(self, other: Self) -> Self {
                let has_nan = self.im.is_nan() || other.im.is_nan();
                let is_at_least =
                    (self.re > other.re && !has_nan) || (self.re == other.re && self.im >= other.im);
                if is_at_least || self.is_nan() { self } else { other }
            }

            fn smaller(self, other: Self) -> Self {
                let has_nan = self.im.is_nan() || other.im.is_nan();
                let is_at_most =
                    (self.re < other.re && !has_nan) || (self.re == other.re && self.im <= other.im);
                if is_at_most || self.is_nan() { self } else { other }
            }

            fn is_true(self) -> bool {
                self.re != 0.0 || self.im != 0.0
            }
        }

        impl Mean for Complex<$float> {
            /// As NumPy divides by a complex number without an imaginary part: infinities become NaN.
            fn mean(self, terms: u32) -> Self {
                let scale = 1.0 / terms as $float;
                Self::new((self.re + self.im * 0.0) * scale, (self.im - self.re * 0.0) * scale)
            }
        }

        impl Mean for $float {
            fn mean(self, terms: u32) -> Self {
                self / terms as $float
            }
        }
    )*};
}

complex! { f32 f64 }

macro_rules! narrow {
    ($($float:ty)*) => {$(
        impl Narrow for $float {
            fn narrow(number: f32) -> Self {
                Self::from_f32(number)
            }
        }

        impl MeanTerm<f32> for $float {
            fn term(self) -> f32 {
                self.to_f32()
            }
        }
    )*};
}

narrow! { bf16 f16 }
