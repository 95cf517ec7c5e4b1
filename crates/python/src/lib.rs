//! The extension module `ropewalk._native`: jobs and their collective calls for Python.
//!
//! The package for Python, in `bindings/python`, has the interface that users see; this module has the calls below it.
//! It copies contributions out of any object with the buffer protocol, or lends a `Buffer`, which needs no
//! copy. It lets Python run while it waits, and gives results as memory with the same protocol.

mod buffer;
mod call;
mod element;
mod errors;
mod function;
mod group;
mod job;
mod memory;
mod operator;
mod options;
mod pending;
mod spare;

use pyo3::pymodule;

/// The native part of the package `ropewalk`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{buffer::Buffer, group::Group, job::Job, memory::Memory, pending::Pending};
}
