//! The arguments of functions that are exported to C, as types that are checked.
//!
//! An exported function takes these types in the places of pointers. Only a call from C makes one there, and its
//! contract is that of the type's `new`, once for all functions; so their bodies need no `unsafe`. Each type has the
//! error of its library as a parameter, in which a null pointer and too little room become a result.
//!
//! ```
//! use ropewalk_c_abi::{ArgumentError, InText, OutPtr};
//!
//! /// The length of a text.
//! extern "C" fn length(text: InText<ArgumentError>, length: OutPtr<usize, ArgumentError>) -> i32 {
//!     match text.get().and_then(|text| length.write(text.len())) {
//!         Ok(()) => 0,
//!         Err(_) => -1,
//!     }
//! }
//! # let mut size = 0;
//! # // SAFETY: the text ends with a NUL, and there is room for the length.
//! # let (text, place) = unsafe { (InText::new(c"four".as_ptr()), OutPtr::new(&raw mut size)) };
//! # assert_eq!((length(text, place), size), (0, 4));
//! ```

mod error;
mod memory;
mod pointers;
mod text;

pub use error::ArgumentError;
pub use memory::{InSlice, LentMemory, Memory};
pub use pointers::{InPtr, Object, OutPtr};
pub use text::{InText, OutText};
