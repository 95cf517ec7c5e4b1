//! `libpmi2.so`: the C interface of PMI-2, as Slurm's `pmi2.h` and MPICH's have it. See `include/pmi2.h`.
//!
//! Several threads may call it at once. Their requests are under way together where the process manager can tell them
//! apart; Slurm's own library lets one wait for the other.

pub mod exports;
