//! `librw_checkpoint.so`: when to save, and a store of checkpoints, for programs in C and whatever can call C. See
//! `include/rw_checkpoint.h`.

pub mod exports;
mod failure;
