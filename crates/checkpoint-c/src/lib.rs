//! `librw_checkpoint.so`: when to save, and a store of checkpoints, for programs in C and whatever can call C. See
//! `include/rw_checkpoint.h`.

#[macro_use]
mod declared;
pub mod exports;
mod failure;
pub mod run;
