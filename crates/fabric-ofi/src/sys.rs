//! The part of [libfabric](https://ofiwg.github.io/libfabric) that ropewalk calls, with its names and its C
//! types.
//!
//! libfabric is not linked but loaded when it is first asked for ([`Library::load`]). So this crate builds on
//! machines without libfabric, needs no C compiler, no headers, no libclang, and a program built with it
//! starts on machines without libfabric too and can say what is missing there. The price is that the types
//! stand here by hand; `tests/layout.rs` compares each of them with the installed headers.
//!
//! libfabric exports few functions. Most of its interface are inline functions of its headers that call
//! through a table of pointers which each object carries; [`calls`] has those.
//!
//! The types are those of libfabric's ABI 1.3 and later, which 1.17 to 2.x keep: structures only grow at
//! their end, and libfabric allocates those that may grow.

pub mod calls;
mod library;
mod types;

pub use library::{Library, LoadError};
pub use types::*;
