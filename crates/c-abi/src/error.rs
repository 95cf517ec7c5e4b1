//! Arguments that cannot be used.

use thiserror::Error;

/// Why an argument of an exported function cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ArgumentError {
    /// A number of items or bytes is negative.
    #[error("a size is negative")]
    NegativeSize,
    /// The pointer to an object is null.
    #[error("an object is missing: was it opened?")]
    NoObject,
    /// The pointer to a place is null.
    #[error("a place for the answer is missing")]
    NoPlace,
    /// The place is too small.
    #[error("the place for the answer is too small")]
    NoRoom,
    /// The pointer to a text is null.
    #[error("a text is missing")]
    NoText,
    /// The pointer to a value is null.
    #[error("a value is missing")]
    NoValue,
}
