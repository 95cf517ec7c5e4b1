//! Compares the `ropewalk` command with Hydra, MPICH and Slurm's PMI library: `cargo xtask bench-rivals`.

mod family;
mod faults;
mod launch;
mod manager;
mod mapping;
mod mpi;
mod network;
mod noise;
mod pmi;
mod slurm;

use std::{env, path::PathBuf};

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

/// Compares the `ropewalk` command beside this one with Hydra, MPICH and Slurm's PMI library.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    comparison: Comparison,
}

#[derive(Subcommand)]
enum Comparison {
    /// From a fault to the verdict that names it, and until nothing is left.
    Faults(faults::Arguments),
    /// Starting processes, also beside a bare loop.
    Launch(launch::Arguments),
    /// Asking for the hosts of all ranks, by one attribute of the job or by a request for each rank.
    Mapping(mapping::Arguments),
    /// Starting MPI programs, on one host and on many, and the memory of launcher and agent.
    Mpi(mpi::Arguments),
    /// A computation in a job, and how often the process manager wakes meanwhile.
    Noise(noise::Arguments),
    /// Requests to the process manager, also beside an echo over a socketpair.
    Pmi(pmi::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().comparison {
        Comparison::Faults(arguments) => faults::run(&arguments),
        Comparison::Launch(arguments) => launch::run(&arguments),
        Comparison::Mapping(arguments) => mapping::run(&arguments),
        Comparison::Mpi(arguments) => mpi::run(&arguments),
        Comparison::Noise(arguments) => noise::run(&arguments),
        Comparison::Pmi(arguments) => pmi::run(&arguments),
    }
}

/// The `ropewalk` command in the folder of this one.
///
/// # Errors
/// If it is not built.
fn ropewalk() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot find my own executable")?;
    let path = own.with_file_name("ropewalk");
    ensure!(
        path.is_file(),
        "there is no {}: build it first, or run cargo xtask bench-rivals",
        path.display()
    );
    Ok(path)
}

/// # Panics
/// If there is nothing to take a median of.
fn median(mut samples: Vec<f64>) -> f64 {
    assert!(!samples.is_empty(), "no sample");
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    if samples.len().is_multiple_of(2) {
        f64::midpoint(samples[middle - 1], samples[middle])
    } else {
        samples[middle]
    }
}
