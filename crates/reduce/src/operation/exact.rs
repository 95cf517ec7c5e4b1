//! Sums of floats that are exact whatever the order.

use bytemuck::{Pod, Zeroable};

use super::{Operation, Reducer, elementwise};

/// The exact sum of each element: [`Accumulator`]s are added without rounding.
///
/// The result has the same bits in each order, on any number of ranks and whatever is lost after its call, and is
/// rounded once, when the program asks for it. An element takes 280 bytes on its way where [`Sum`](super::Sum) takes 8,
/// so that a long vector takes some 35 times as long.
///
/// # Examples
/// ```
/// use ropewalk_reduce::{Accumulator, ExactSum, ordered_fold};
///
/// // In double precision 1e100 + 1 - 1e100 is 0.
/// let terms = [1e100, 1.0, -1e100].map(|term| vec![Accumulator::from(term)]);
/// let sum = ordered_fold(terms.to_vec(), ExactSum)?;
/// assert_eq!(sum.map(|sum| sum[0].to_f64()), Some(1.0));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactSum;

/// The exact sum of any number of floats: an element that [`ExactSum`] combines (U. Kulisch, "Very fast and exact
/// accumulation of products", Computing 91, 2011).
///
/// It is a fixed-point number that has a place for each bit of an `f64`, and for the carries of 2^77 terms. A rank that
/// has many terms adds all of them to one accumulator, so that one element goes to the others.
///
/// # Examples
/// ```
/// use ropewalk_reduce::Accumulator;
///
/// let sum: Accumulator = std::iter::repeat_n(0.1, 10).collect();
/// assert_eq!(sum.to_f64(), 1.0);
/// assert_ne!((0..10).map(|_| 0.1).sum::<f64>(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Accumulator {
    /// The sum of the finite terms in units of 2^-1074, as a two's complement, least significant limb first. The two
    /// arrays are one: for arrays of their length together nobody has implemented `Pod`.
    limbs: [[u64; LIMBS / 2]; 2],
    /// The kinds of terms that there are.
    kinds: u64,
}

/// 2098 bits from the lowest bit of the smallest `f64` to the highest one of the largest, and 78 for carries and sign.
const LIMBS: usize = 34;

const NAN: u64 = 1;
const PLUS_INFINITY: u64 = 2;
const MINUS_INFINITY: u64 = 4;
const MINUS_ZERO: u64 = 8;
/// All that is finite, but for -0.
const FINITE: u64 = 16;

impl Accumulator {
    /// Adds a term. NaN, and infinities of both signs, make the sum NaN.
    pub fn add(&mut self, term: f64) {
        let is_negative = term.is_sign_negative();
        self.kinds |= match term {
            _ if term.is_nan() => NAN,
            _ if term.is_infinite() && is_negative => MINUS_INFINITY,
            _ if term.is_infinite() => PLUS_INFINITY,
            _ if term == 0.0 && is_negative => MINUS_ZERO,
            _ => FINITE,
        };
        if !term.is_finite() {
            return;
        }
        // Numbers below the normal ones have the exponent of the lowest of these, without the hidden bit.
        let exponent = (term.to_bits() >> 52 & 0x7FF) as usize;
        let hidden = u64::from(exponent > 0) << 52;
        let significand = term.to_bits() & ((1 << 52) - 1) | hidden;
        let shift = exponent.saturating_sub(1);
        let wide = u128::from(significand) << (shift % 64);
        let parts = [wide as u64, (wide >> 64) as u64];
        let step = match is_negative {
            true => u64::overflowing_sub,
            false => u64::overflowing_add,
        };
        let mut carry = false;
        for (at, limb) in self.limbs.as_flattened_mut()[shift / 64..].iter_mut().enumerate() {
            let part = parts.get(at).copied().unwrap_or_default();
            if at >= parts.len() && !carry {
                return;
            }
            let (sum, by_part) = step(*limb, part);
            let (sum, by_carry) = step(sum, u64::from(carry));
            (*limb, carry) = (sum, by_part | by_carry);
        }
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &Self) {
        self.kinds |= other.kinds;
        let pairs = self
            .limbs
            .as_flattened_mut()
            .iter_mut()
            .zip(other.limbs.as_flattened());
        let mut carry = false;
        for (limb, part) in pairs {
            let (sum, by_part) = limb.overflowing_add(*part);
            let (sum, by_carry) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, by_part | by_carry);
        }
    }

    /// The nearest `f64`; of two that are equally near the one with an even significand. A sum of nothing but -0 is -0.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        let magnitude = |limbs: &[u64]| f64::from_bits(nearest(limbs, 53, 0).min(f64::INFINITY.to_bits()));
        self.to_float(magnitude)
    }

    /// As [`to_f64`](Self::to_f64) for `f32`: it is not rounded twice.
    #[must_use]
    pub fn to_f32(&self) -> f32 {
        // The unit of `f32` is 2^-149.
        let infinity = u64::from(f32::INFINITY.to_bits());
        let magnitude = |limbs: &[u64]| {
            let bits = nearest(limbs, 24, 1074 - 149).min(infinity);
            f64::from(f32::from_bits(bits as u32))
        };
        // Each `f32` is an `f64`.
        self.to_float(magnitude) as f32
    }

    /// The float whose magnitude a function gives.
    fn to_float(self, magnitude: impl Fn(&[u64]) -> f64) -> f64 {
        let has = |kinds: u64| self.kinds & kinds == kinds;
        if has(NAN) || has(PLUS_INFINITY | MINUS_INFINITY) {
            return f64::NAN;
        }
        if has(PLUS_INFINITY) {
            return f64::INFINITY;
        }
        if has(MINUS_INFINITY) {
            return f64::NEG_INFINITY;
        }
        if self.kinds == MINUS_ZERO {
            return -0.0;
        }
        let mut limbs = self.limbs;
        let limbs = limbs.as_flattened_mut();
        let is_negative = limbs.last().is_some_and(|limb| limb >> 63 == 1);
        if !is_negative {
            return magnitude(limbs);
        }
        let mut carry = true;
        for limb in limbs.iter_mut() {
            (*limb, carry) = (!*limb).overflowing_add(u64::from(carry));
        }
        -magnitude(limbs)
    }
}

/// The encoding (IEEE 754, section 3.4) of the nearest float without a sign to a number that is not negative. The float
/// has so many binary digits, and its unit is that bit of the number. Encodings beyond that of infinity are infinite.
fn nearest(limbs: &[u64], digits: usize, unit: usize) -> u64 {
    let Some(top) = limbs.iter().rposition(|&limb| limb != 0) else {
        return 0;
    };
    let length = top * 64 + 64 - limbs[top].leading_zeros() as usize;
    let shift = length.saturating_sub(digits).max(unit);
    let significand = bits_from(limbs, shift);
    let is_up = shift > 0 && {
        let is_half = bits_from(limbs, shift - 1) & 1 == 1;
        let (whole, rest) = ((shift - 1) / 64, (shift - 1) % 64);
        let is_more = limbs[..whole].iter().any(|&limb| limb != 0) || limbs[whole] & ((1 << rest) - 1) != 0;
        is_half && (is_more || significand & 1 == 1)
    };
    // The hidden bit adds one to the exponent, and so does a carry out of the significand.
    (((shift - unit) as u64) << (digits - 1)) + significand + u64::from(is_up)
}

/// The lowest 64 bits of a number that was shifted to the right.
fn bits_from(limbs: &[u64], shift: usize) -> u64 {
    let limb = |at: usize| limbs.get(at).copied().unwrap_or_default();
    let wide = u128::from(limb(shift / 64 + 1)) << 64 | u128::from(limb(shift / 64));
    (wide >> (shift % 64)) as u64
}

impl From<f64> for Accumulator {
    fn from(term: f64) -> Self {
        let mut sum = Self::default();
        sum.add(term);
        sum
    }
}

impl From<f32> for Accumulator {
    fn from(term: f32) -> Self {
        f64::from(term).into()
    }
}

impl Extend<f64> for Accumulator {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, terms: I) {
        terms.into_iter().for_each(|term| self.add(term));
    }
}

impl FromIterator<f64> for Accumulator {
    fn from_iter<I: IntoIterator<Item = f64>>(terms: I) -> Self {
        let mut sum = Self::default();
        sum.extend(terms);
        sum
    }
}

impl Reducer<Vec<Accumulator>> for ExactSum {
    fn into_operation(self) -> Operation<Vec<Accumulator>> {
        let merge = |mut left: Accumulator, right: Accumulator| {
            left.merge(&right);
            left
        };
        elementwise("exact_sum", merge).infallible()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ordered_fold;

    fn sum(terms: &[f64]) -> Accumulator {
        terms.iter().copied().collect()
    }

    /// Any finite float, from the smallest to the largest.
    fn finite() -> impl Strategy<Value = f64> {
        any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("finite", |term| term.is_finite())
    }

    proptest! {
        /// Sums of numbers with a common unit are those of integers, which the compiler rounds to the nearest even.
        #[test]
        fn sums_are_those_of_integers(
            terms in prop::collection::vec((any::<i64>().prop_map(|term| term >> 11), 0..64_u32), 1..40),
            exponent in -800..900_i32,
        ) {
            // In steps that are exact: neither too large nor below the normal numbers.
            let scale = |number: f64| (0..exponent.abs() / 2).fold(number, |number, _| match exponent > 0 {
                true => number * 4.0,
                false => number / 4.0,
            });
            let parts = terms.iter().map(|&(term, shift)| i128::from(term) << shift);
            let integer: i128 = parts.clone().sum();
            let floats: Vec<f64> = parts.map(|part| scale(part as f64)).collect();
            prop_assert_eq!(sum(&floats).to_f64(), scale(integer as f64));
        }

        /// The order and the brackets make no difference to a single bit, and one float is its own sum.
        #[test]
        fn the_order_makes_no_difference(
            terms in prop::collection::vec(finite(), 1..12),
            turn in 0_usize..12,
            cut in 0_usize..12,
        ) {
            let expected = sum(&terms);
            let mut turned = terms.clone();
            turned.rotate_left(turn % terms.len());
            let (left, right) = turned.split_at(cut % terms.len());
            let mut merged = sum(right);
            merged.merge(&sum(left));
            prop_assert_eq!(merged, expected);
            let vectors = turned.iter().map(|&term| vec![Accumulator::from(term)]).collect();
            prop_assert_eq!(ordered_fold(vectors, ExactSum).unwrap(), Some(vec![expected]));
            prop_assert_eq!(Accumulator::from(terms[0]).to_f64().to_bits(), terms[0].to_bits());
        }

        /// Terms that cancel out leave nothing behind, in the whole range of floats.
        #[test]
        fn terms_cancel_out(terms in prop::collection::vec(finite(), 0..12), last in finite()) {
            let mut all = sum(&terms);
            all.add(last);
            all.extend(terms.iter().map(|term| -term));
            prop_assert_eq!(all.to_f64(), last);
        }

        /// A sum of two is rounded as the processor rounds it, also below the normal numbers and to infinity.
        #[test]
        fn two_are_added_as_by_the_processor(a in finite(), b in finite(), near in any::<u8>()) {
            // Random exponents are far from each other.
            let b = match near {
                0..200 => f64::from_bits(b.to_bits() & !(0x7FF << 52) | a.to_bits() & (0x7FF << 52)),
                _ => b,
            };
            prop_assert_eq!(sum(&[a, b]).to_f64(), a + b);
            let (a, b) = (a as f32, b as f32);
            prop_assume!(a.is_finite() && b.is_finite());
            prop_assert_eq!(sum(&[a.into(), b.into()]).to_f32(), a + b);
        }
    }

    /// Ties go to the even significand, and the smallest term decides them; so it is for `f32` at once.
    #[test]
    fn ties_are_even() {
        let half = 2f64.powi(-53);
        let tiny = f64::from_bits(1);
        assert_eq!(sum(&[1.0, half]).to_f64(), 1.0);
        assert_eq!(sum(&[1.0, half, tiny]).to_f64(), 1.0 + f64::EPSILON);
        assert_eq!(sum(&[1.0, f64::EPSILON, half]).to_f64(), 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(
            sum(&[1.0, f64::EPSILON, half, -tiny]).to_f64(),
            1.0 + f64::EPSILON
        );
        let half = 2f64.powi(-24);
        assert_eq!(sum(&[1.0, half]).to_f32(), 1.0);
        // As an `f64` it would be the tie itself.
        assert_eq!(sum(&[1.0, half, tiny]).to_f32(), 1.0 + f32::EPSILON);
        assert_eq!(sum(&[1.0, half, tiny]).to_f64() as f32, 1.0);
        assert_eq!(sum(&[2f64.powi(-150)]).to_f32(), 0.0);
        assert_eq!(sum(&[2f64.powi(-150), tiny]).to_f32(), f32::from_bits(1));
    }

    /// Only the rounded sum overflows, and signs of zero, infinities and NaN are as IEEE 754 has them.
    #[test]
    fn special_values_are_kept() {
        const MAX: f64 = f64::MAX;
        assert_eq!(sum(&[MAX, MAX]).to_f64(), f64::INFINITY);
        assert_eq!(sum(&[-MAX, -MAX]).to_f64(), f64::NEG_INFINITY);
        assert_eq!(sum(&[MAX, MAX, -MAX]).to_f64(), MAX);
        assert_eq!(sum(&[1e300]).to_f32(), f32::INFINITY);
        assert_eq!(sum(&[f64::INFINITY, -MAX]).to_f64(), f64::INFINITY);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).to_f64().is_nan());
        assert!(sum(&[f64::NAN, 1.0]).to_f32().is_nan());
        assert_eq!(sum(&[-0.0, -0.0]).to_f64().to_bits(), (-0f64).to_bits());
        for zero in [&[][..], &[-0.0, 0.0], &[1.0, -1.0], &[-1.0, 1.0, -0.0]] {
            assert_eq!(sum(zero).to_f64().to_bits(), 0, "{zero:?}");
        }
    }
}
