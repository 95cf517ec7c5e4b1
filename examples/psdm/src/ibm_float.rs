//! The hexadecimal floating point of the IBM System/360, which SEG-Y calls sample format 1.
//!
//! A number is a sign, an exponent of 16 with an excess of 64 in 7 bits, and a fraction of 24 bits below the point
//! ("IBM System/360 Principles of Operation", A22-6821, chapter "Floating-Point Arithmetic").

/// The nearest `f32` of a number in IBM's format, ties to even; infinite if no finite `f32` is large enough.
///
/// Every number whose magnitude lies between the least normal `f32` and `f32::MAX` is converted exactly: both formats
/// have 24 bits of fraction.
pub(crate) fn ibm_to_f32(bits: u32) -> f32 {
    let sign = if bits >> 31 == 1 { -1.0 } else { 1.0 };
    let exponent = (bits >> 24 & 0x7f) as i32 - EXCESS;
    let fraction = f64::from(bits & 0x00ff_ffff);
    // The product is exact: 24 bits of fraction times a power of two that is a normal f64.
    (sign * fraction * power_of_two(4 * exponent - FRACTION_BITS)) as f32
}

/// A power of two whose exponent lies between -1022 and 1023.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

const EXCESS: i32 = 64;
const FRACTION_BITS: i32 = 24;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The value by the definition: hexadecimal digits below the point, times 16 as often as the exponent says.
    fn by_definition(bits: u32) -> f64 {
        let mut value = 0.0;
        for digit in 0..6 {
            value = (value + f64::from(bits >> (4 * digit) & 0xf)) / 16.0;
        }
        for _ in 64..bits >> 24 & 0x7f {
            value *= 16.0;
        }
        for _ in bits >> 24 & 0x7f..64 {
            value /= 16.0;
        }
        if bits >> 31 == 1 { -value } else { value }
    }

    /// The number in IBM's format, if it has one: the fraction is shifted until its exponent is one of 16.
    fn to_ibm(value: f32) -> Option<u32> {
        let bits = value.to_bits();
        let exponent = (bits >> 23 & 0xff) as i32 - 126;
        let sixteens = (exponent + 3).div_euclid(4);
        let shift = 4 * sixteens - exponent;
        let fraction = bits & 0x007f_ffff | 0x0080_0000;
        (fraction.trailing_zeros() as i32 >= shift)
            .then(|| bits & 0x8000_0000 | ((sixteens + EXCESS) as u32) << 24 | fraction >> shift)
    }

    proptest! {
        /// Every pattern of bits has the value of the definition, rounded once; in the range of normal `f32` the value
        /// is exact.
        #[test]
        fn bits_have_the_value_of_the_definition(bits in any::<u32>()) {
            let (converted, defined) = (ibm_to_f32(bits), by_definition(bits));
            prop_assert_eq!(converted.to_bits(), (defined as f32).to_bits());
            if (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&defined.abs()) {
                prop_assert_eq!(f64::from(converted), defined);
            }
        }

        /// A normal `f32` that IBM's format can hold comes back bit for bit.
        #[test]
        fn what_ibm_can_hold_comes_back(value in prop::num::f32::NORMAL, cleared in 0u32..4) {
            let value = f32::from_bits(value.to_bits() >> cleared << cleared);
            if let Some(ibm) = to_ibm(value) {
                prop_assert_eq!(ibm_to_f32(ibm).to_bits(), value.to_bits());
            } else {
                prop_assert!(cleared < 3, "a fraction with three zeros at its end fits");
            }
        }
    }

    /// Numbers whose bits are known, unnormalised ones, and both ends of the range.
    #[test]
    fn known_numbers() {
        for (bits, value) in [
            (0x0000_0000, 0.0),
            (0x4110_0000, 1.0),
            (0xc276_a000, -118.625),
            (0x4080_0000, 0.5),
            (0x4400_0001, 2f32.powi(-8)),
            (0x60ff_ffff, f32::MAX),
            (0x6110_0000, f32::INFINITY),
            (0x7fff_ffff, f32::INFINITY),
            (0x0010_0000, 0.0),
            (0x1b80_0000, 2f32.powi(-149)),
        ] {
            assert_eq!(ibm_to_f32(bits), value, "{bits:#010x}");
        }
        assert!(ibm_to_f32(0x8000_0000).is_sign_negative());
    }
}
