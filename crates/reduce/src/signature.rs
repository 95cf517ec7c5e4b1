//! What all members of a reduction must agree on.

use std::{fmt, num::NonZeroU32};

use ropewalk_names::Rank;
use serde::{Deserialize, Serialize};

/// What one member asks for; a reduction goes on only if all members ask for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The name of the operation.
    pub operation: String,
    /// The name of the element's or object's type.
    pub element: String,
    /// The size of an element in bytes; `None` for an opaque object, which cannot be cut.
    pub element_size: Option<NonZeroU32>,
    /// The length of the encoded vector in bytes; `None` for an opaque object, whose length may differ.
    pub length: Option<u64>,
    /// Who gets the result.
    pub root: Rank,
    /// Whether the order of combination is fixed.
    pub order: Order,
    /// Who combines with whom.
    pub policy: Policy,
    /// The size that the user or the default wants for a stripe, in bytes.
    pub stripe_size: u64,
}

impl Signature {
    /// The longest name of an operation or a type, in bytes; longer ones are cut.
    pub const NAME_LENGTH_MAX: usize = 200;
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.operation)?;
        match (self.length, self.element_size) {
            (Some(length), Some(size)) => write!(f, "{} x {}", length / u64::from(size.get()), self.element)?,
            _ => write!(f, "{}", self.element)?,
        }
        write!(
            f,
            " to root {}, {:?} order, {:?} policy",
            self.root, self.order, self.policy
        )?;
        write!(f, ", stripes of {} bytes", self.stripe_size)
    }
}

/// The beginning of a text, at most `length_max` bytes of it.
pub(crate) fn cut(mut text: String, length_max: usize) -> String {
    text.truncate(text.floor_char_boundary(length_max));
    text
}

/// Whether the order in which contributions are combined may depend on who is ready first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// It may: for operations that are commutative and associative, or where rounding may differ.
    #[default]
    Any,
    /// It may not: the shape of the tree over the members is fixed, so that floating-point results are bitwise
    /// the same from run to run, whatever was slow or died, and operations need not commute.
    Ordered,
}

/// Who combines with whom, where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// The vector is cut into stripes, each with a tree of its own that grows from whoever is ready and has
    /// capacity; what a death destroys is replaced by the parts it was made from.
    #[default]
    Chunked,
    /// The steps of the paper, literally: the whole vector, pairs in order of arrival, the faster of the two
    /// executes, recovery from the original contributions. The measured baseline; its order is `Any`.
    Paper,
}
