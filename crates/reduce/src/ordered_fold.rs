//! The serial twin of an ordered reduction.

use bytes::Bytes;
use ropewalk_reduce_core::block_of;
use thiserror::Error;

use crate::{
    folding::{Operand, fold},
    operation::{DecodeError, FoldError, Operation, Reducer},
};

/// Combines values in one process, in the order and shape in which an [ordered](crate::Order::Ordered)
/// reduction combines the contributions of as many ranks: the result is bitwise the same. `None` if there is
/// no value.
///
/// # Errors
/// If the values do not fit together, or the reducer cannot decode what it encoded.
///
/// # Examples
/// ```
/// use ropewalk_reduce::{Sum, ordered_fold};
///
/// let sum = ordered_fold(vec![vec![1e8f32], vec![1.0], vec![-1e8]], Sum)?;
/// assert_eq!(sum, Some(vec![0.0])); // (1e8 + 1) + -1e8, in single precision
/// # Ok::<(), ropewalk_reduce::FoldFailed>(())
/// ```
pub fn ordered_fold<V>(values: Vec<V>, reducer: impl Reducer<V>) -> Result<Option<V>, FoldFailed> {
    let operation: Operation<V> = reducer.into_operation();
    if values.is_empty() {
        return Ok(None);
    }
    let encode = |value: &V| Operand::Kept(Bytes::copy_from_slice(&operation.codec.encode(value)));
    let blocks = values.chunks(block_of(values.len()));
    let folded = blocks.map(|block| fold(&operation.fold, block.iter().map(encode).collect()));
    let folded = folded.map(|outcome| outcome.map(Operand::Free));
    let whole = fold(&operation.fold, folded.collect::<Result<_, _>>()?)?;
    Ok(Some(operation.codec.decode(&whole)?))
}

/// Values could not be combined.
#[derive(Debug, Error)]
#[error("the values cannot be combined: {message}")]
pub struct FoldFailed {
    /// The reason.
    pub message: String,
}

impl From<FoldError> for FoldFailed {
    fn from(error: FoldError) -> Self {
        Self {
            message: error.to_string(),
        }
    }
}

impl From<DecodeError> for FoldFailed {
    fn from(error: DecodeError) -> Self {
        Self {
            message: error.to_string(),
        }
    }
}
