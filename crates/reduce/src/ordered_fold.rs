//! The serial twin of an ordered reduction.

use ropewalk_fabric::Buffer;
use thiserror::Error;

use crate::{
    canonical_tree,
    operation::{DecodeError, FoldError, Operation, Reducer},
    worker::Side,
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
    let operation = reducer.into_operation();
    if values.is_empty() {
        return Ok(None);
    }
    let size = u32::try_from(values.len()).map_err(|_| FoldFailed {
        message: "too many values".into(),
    })?;
    let mut encoded: Vec<Option<Buffer>> = Vec::with_capacity(values.len());
    for value in values {
        encoded.push(Some(Buffer::copy_of(&operation.codec.encode(&value))));
    }
    let whole = fold_node(&operation, &mut encoded, 0..size)?;
    Ok(Some(operation.codec.decode(&[&whole])?))
}

fn fold_node<V>(
    operation: &Operation<V>,
    leaves: &mut [Option<Buffer>],
    node: std::ops::Range<u32>,
) -> Result<Buffer, FoldError> {
    if node.len() == 1 {
        return Ok(leaves[node.start as usize]
            .take()
            .expect("each leaf is visited once"));
    }
    let (left, right) = canonical_tree::children(&node);
    let mut accumulator = fold_node(operation, leaves, left)?;
    let other = fold_node(operation, leaves, right)?;
    operation.fold.fold(&mut accumulator, 0, &other, Side::Right)?;
    Ok(accumulator)
}

/// Why values could not be combined.
#[derive(Debug, Error)]
#[error("the values cannot be combined: {message}")]
pub struct FoldFailed {
    /// What is wrong.
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
