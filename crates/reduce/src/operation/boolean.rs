//! Truth values in vectors.

use std::ops::{BitAnd, BitOr, BitXor};

use bytemuck::{Pod, Zeroable};

/// A truth value in the memory of a vector: a byte, 1 if it is true and 0 if not (`MPI_C_BOOL`, `numpy.bool`).
///
/// `bool` itself has bit patterns that are none of its values, so that bytes from elsewhere cannot be viewed as `bool`.
///
/// # Examples
/// ```
/// use ropewalk_reduce::{Bool, LogicalAnd, ordered_fold};
///
/// let converged = [true, false, true].map(|here| vec![Bool::from(here)]);
/// let everywhere = ordered_fold(converged.to_vec(), LogicalAnd)?;
/// assert_eq!(everywhere, Some(vec![Bool::from(false)]));
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl From<bool> for Bool {
    fn from(is_true: bool) -> Self {
        Self(u8::from(is_true))
    }
}

impl From<Bool> for bool {
    /// Bytes that came from elsewhere are true unless they are 0.
    fn from(value: Bool) -> Self {
        value.0 != 0
    }
}

macro_rules! operators {
    ($($operator:ident, $method:ident;)*) => {$(
        impl $operator for Bool {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                Self::from(bool::from(self).$method(bool::from(other)))
            }
        }
    )*};
}

operators! {
    BitAnd, bitand;
    BitOr, bitor;
    BitXor, bitxor;
}
