//! A kind of value, its encoding as bytes, and the combination of two of them.

mod arithmetic;
mod bits;
mod boolean;
mod carried;
mod elementwise;
mod exact;
mod located;
mod object;
mod ordered;

use std::{any::Any, borrow::Cow, fmt, num::NonZeroU32, sync::Arc};

use thiserror::Error;

use crate::folding::Memory;

pub(crate) use self::carried::{carried, carried_whole};
pub use self::{
    arithmetic::{Number, Prod, Sum},
    bits::{Bits, BitwiseAnd, BitwiseOr, BitwiseXor, LogicalAnd, LogicalOr, LogicalXor},
    boolean::Bool,
    elementwise::elementwise,
    exact::{Accumulator, ExactSum},
    located::{Located, MaxLoc, MinLoc},
    object::{ObjectReducer, object},
    ordered::{Max, Min, Ordered},
};

/// Implements reducers of vectors whose elements have a trait, by methods of these elements.
macro_rules! reducers {
    ($element:ident; $($name:ident, $mpi:literal, $method:ident;)*) => {$(
        impl<T: $element> crate::operation::Reducer<Vec<T>> for $name {
            fn into_operation(self) -> crate::operation::Operation<Vec<T>> {
                crate::operation::Operation {
                    is_total: T::IS_TOTAL,
                    ..crate::operation::elementwise($mpi, T::$method)
                }
            }
        }
    )*};
}
use reducers;

/// [`Group::reduce`](crate::Group::reduce) takes one as its operation on values of type `V`.
///
/// The operations that MPI predefines, and an exact sum, reduce vectors:
///
/// | reducers | elements |
/// |---|---|
/// | [`Sum`], [`Prod`] | each [`Number`]: integers, floats, complex numbers |
/// | [`Min`], [`Max`] | all [`Ordered`] ones: integers, floats, [`Bool`] |
/// | [`LogicalAnd`], [`LogicalOr`], [`LogicalXor`] | all that have [`Bits`]: integers, [`Bool`] |
/// | [`BitwiseAnd`], [`BitwiseOr`], [`BitwiseXor`] | as these |
/// | [`MinLoc`], [`MaxLoc`] | [`Located`] values |
/// | [`ExactSum`], which MPI does not have | [`Accumulator`]s of floats |
///
/// [`elementwise`] makes a reducer from a function on elements, [`object`] from an [`ObjectReducer`].
///
/// A function of yours is run by a thread of the job, or by one that calls or waits: it must not take a lock that such
/// a thread holds.
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
    pub(crate) fold: Fold,
    /// To combine whole elements never fails, and gives the same on every rank.
    pub(crate) is_total: bool,
}

impl<V> Operation<V> {
    /// Says that the operation never panics, and gives the same on every rank. Short vectors then take the fastest way,
    /// on which every rank combines all of them.
    #[must_use]
    pub fn infallible(self) -> Self {
        Self {
            is_total: true,
            ..self
        }
    }
}

impl<V> Reducer<V> for Operation<V> {
    fn into_operation(self) -> Operation<V> {
        self
    }
}

impl<V> fmt::Debug for Operation<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation({} of {})", self.name, self.element)
    }
}

/// A value as bytes, and back.
pub(crate) trait Codec<V>: Send + Sync {
    fn encode<'a>(&self, value: &'a V) -> Cow<'a, [u8]>;

    fn decode(&self, bytes: &[u8]) -> Result<V, DecodeError>;

    /// The value that a result is, without a copy if that can be.
    fn take(&self, result: ResultMemory) -> Result<V, DecodeError>;

    /// The memory of a value that nobody needs any more, for a result.
    fn memory(&self, _value: V) -> Option<Box<dyn Elements>> {
        None
    }
}

/// The memory of a result.
pub(crate) enum ResultMemory {
    /// Of a vector, as its owner wants it.
    Elements(Box<dyn Elements>),
    /// Of an object.
    Object(Memory),
}

/// A vector of some type.
pub(crate) trait Elements: Send {
    fn bytes_mut(&mut self) -> &mut [u8];

    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl fmt::Debug for ResultMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResultMemory")
    }
}

/// The combination of the bytes of two values.
#[derive(Clone)]
pub(crate) enum Fold {
    /// Of vectors, any part of which can be combined by itself.
    Elements(Arc<dyn FoldElements>),
    /// Of objects.
    Objects(Arc<dyn FoldObjects>),
}

pub(crate) trait FoldElements: Send + Sync {
    /// Combines `other`, which stands on this side, into `accumulator`. Both are whole elements.
    fn fold(&self, accumulator: &mut [u8], other: &[u8], side: Side) -> Result<(), FoldError>;

    /// The bytes of the whole elements in so many `bytes`, at least one element.
    fn whole(&self, bytes: usize) -> usize;

    /// Memory for a result of so many bytes.
    fn result(&self, bytes: usize) -> Box<dyn Elements>;
}

pub(crate) trait FoldObjects: Send + Sync {
    fn fold(&self, left: &[u8], right: &[u8]) -> Result<Vec<u8>, FoldError>;
}

/// The side of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Bytes are no value.
#[derive(Debug, Error)]
#[error("the bytes of a contribution are no value of the type that is reduced: {message}")]
pub struct DecodeError {
    /// The reason.
    pub message: String,
}

/// Two values could not be combined.
#[derive(Debug, Error)]
pub(crate) enum FoldError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("operands of {left} and {right} bytes are no whole elements, equally many, in aligned memory")]
    Elements { left: usize, right: usize },
    #[error("it panicked: {0}")]
    Panicked(String),
    #[error("{0}")]
    Source(std::io::Error),
}
