//! How a vector is cut into stripes that are reduced side by side.

use std::ops::Range;

use crate::signature::Signature;

/// The stripes of a vector whose reduction has this signature: byte ranges of the encoded contribution.
///
/// The cut follows from the signature alone, so that every rank knows it without being told. Each stripe
/// starts on a multiple of [`ALIGNMENT`] and holds whole elements. An opaque object is one stripe.
pub fn cut(signature: &Signature) -> Vec<Range<u64>> {
    let (Some(element_size), Some(length)) = (signature.element_size, signature.length) else {
        let whole = 0..0;
        return vec![whole];
    };
    let unit = least_common_multiple(u64::from(element_size.get()), ALIGNMENT);
    let length = length.min(LENGTH_MAX);
    let size = signature
        .stripe_size
        .clamp(1, length.max(1))
        .max(length.div_ceil(STRIPES_MAX));
    let size = size.div_ceil(unit) * unit;
    let count = length.div_ceil(size).max(1);
    (0..count)
        .map(|stripe| stripe * size..((stripe + 1) * size).min(length))
        .collect()
}

/// The stripe size that suits a vector of `length` bytes when the user names none.
///
/// Enough stripes to keep all links at work, each large enough that its control messages cost little.
pub fn default_size(length: u64) -> u64 {
    (length / STRIPES_PREFERRED).clamp(STRIPE_SIZE_MIN, STRIPE_SIZE_MAX)
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// What the start of each stripe is a multiple of, in bytes: the alignment that kernels may rely on.
pub const ALIGNMENT: u64 = ropewalk_fabric::Buffer::ALIGNMENT as u64;
/// The longest vector, in bytes; far more than a memory has.
pub const LENGTH_MAX: u64 = 1 << 56;
/// The most stripes of one reduction.
pub const STRIPES_MAX: u64 = 256;
const STRIPES_PREFERRED: u64 = 16;
const STRIPE_SIZE_MIN: u64 = 256 << 10;
const STRIPE_SIZE_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::signature::{Order, Policy};

    proptest! {
        /// The stripes cover the vector without gap or overlap, start aligned, and hold whole elements.
        #[test]
        fn stripes_partition_the_vector(elements in 0u64..100_000, size in 1u32..100, stripe in 1u64..1_000_000) {
            let length = elements * u64::from(size);
            let signature = Signature {
                operation: String::new(),
                element: String::new(),
                element_size: NonZeroU32::new(size),
                length: Some(length),
                root: ropewalk_names::Rank(0),
                order: Order::Any,
                policy: Policy::Chunked,
                stripe_size: stripe,
            };
            let stripes = cut(&signature);
            prop_assert!(stripes.len() as u64 <= STRIPES_MAX);
            prop_assert_eq!(stripes[0].start, 0);
            prop_assert_eq!(stripes[stripes.len() - 1].end, length);
            for pair in stripes.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
            }
            for stripe in &stripes {
                prop_assert_eq!(stripe.start % ALIGNMENT, 0);
                prop_assert_eq!((stripe.end - stripe.start) % u64::from(size), 0);
            }
        }
    }
}
