//! The runtime that keeps a parallel job going: facade library and command.

pub mod npy;
