//! `libpmi.so`: the C interface of PMI-1, as Slurm's `pmi.h` and MPICH's have it. See `include/pmi.h`.
//!
//! Unlike Slurm's own library of that name it speaks PMI's wire protocol, and so works under every process manager
//! that does: `ropewalk run`, Hydra's `mpiexec`, `srun --mpi=pmi2`.

pub mod exports;
