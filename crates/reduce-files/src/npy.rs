//! NumPy's files of one array each, `.npy`: plain numbers only, read and written piece by piece.
//!
//! The format is described in NumPy's reference, "numpy.lib.format". A file is a header, which is a Python
//! literal, and then the elements, nothing else.

mod array_file;
mod element;
mod header;

pub use array_file::{ArrayFile, ArrayFileError, write_array};
pub use element::ElementType;
pub use header::{Header, HeaderError};
