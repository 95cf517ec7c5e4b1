//! What is reduced and how: a kind of value, its encoding as bytes, and the combination of two of them.

mod arithmetic;
mod elementwise;
mod object;

use std::{borrow::Cow, num::NonZeroU32, sync::Arc};

use ropewalk_fabric::Buffer;
use thiserror::Error;

pub use self::{
    arithmetic::{Max, Min, Number, Prod, Sum},
    elementwise::elementwise,
    object::{ObjectReducer, object},
};
use crate::worker::Side;

/// What [`Group::reduce`](crate::Group::reduce) takes as its operation on values of type `V`.
///
/// [`Sum`], [`Prod`], [`Min`] and [`Max`] reduce vectors of numbers; [`elementwise`] makes a reducer from a
/// function on elements, [`object`] from an [`ObjectReducer`].
pub trait Reducer<V> {
    /// The operation, ready to be run on bytes.
    fn into_operation(self) -> Operation<V>;
}

/// An operation on values of type `V`.
pub struct Operation<V> {
    pub(crate) name: String,
    pub(crate) element: String,
    /// The size of an element; `None` for an object that cannot be cut.
    pub(crate) element_size: Option<NonZeroU32>,
    pub(crate) codec: Box<dyn Codec<V>>,
    pub(crate) fold: Arc<dyn Fold>,
}

impl<V> Reducer<V> for Operation<V> {
    fn into_operation(self) -> Operation<V> {
        self
    }
}

impl<V> std::fmt::Debug for Operation<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operation({} of {})", self.name, self.element)
    }
}

/// How a value becomes bytes and is made from the bytes of its stripes.
pub(crate) trait Codec<V>: Send + Sync {
    fn encode<'a>(&self, value: &'a V) -> Cow<'a, [u8]>;

    fn decode(&self, stripes: &[&[u8]]) -> Result<V, DecodeError>;
}

/// How the bytes of two values are combined.
pub(crate) trait Fold: Send + Sync {
    /// Combines `other` into `accumulator`, whose data starts at `data_offset`, a multiple of
    /// [`Buffer::ALIGNMENT`]; `side` is the side on which `other` stands.
    fn fold(
        &self,
        accumulator: &mut Buffer,
        data_offset: usize,
        other: &[u8],
        side: Side,
    ) -> Result<(), FoldError>;
}

/// Why bytes are no value.
#[derive(Debug, Error)]
#[error("the bytes of a contribution are no value of the type that is reduced: {message}")]
pub struct DecodeError {
    /// What is wrong with them.
    pub message: String,
}

/// Why two values could not be combined.
#[derive(Debug, Error)]
pub(crate) enum FoldError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the operands have {left} and {right} bytes; they must have the same length")]
    Length { left: usize, right: usize },
}
