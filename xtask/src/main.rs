//! Checks, tests and measurements of the project: `cargo xtask help`.

mod bench_reduce;
mod bench_rivals;
mod check;
mod debian;
mod fuzz;
mod lines;
mod look;
mod mpi4py;
mod openfoam;
mod project;
mod sanitize;
mod shell;
mod soak_kill;
mod test;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Checks, tests and measurements of the project.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Times the reduction beside MPI's, and writes the table in docs/benchmarks.md
    BenchReduce,
    /// Times the command beside Hydra, MPICH and Slurm's PMI library
    BenchRivals(bench_rivals::Options),
    /// Looks at everything and changes nothing: format, rules of the house, clippy, documentation, licences
    Check,
    /// Feeds every parser of foreign bytes with what it does not expect
    Fuzz(fuzz::Options),
    /// Counts lines of Rust by package, product and tests
    Lines,
    /// Opens a report in a headless browser, fails if its console shows anything, and takes a picture
    Look {
        /// The page; by default the demo's report
        page: Option<PathBuf>,
    },
    /// Runs mpi4py's own tests under ours and under Hydra; they come from PyPI
    Mpi4py(mpi4py::Options),
    /// Builds the function object for OpenFOAM, and kills solvers that it saves
    Openfoam(openfoam::Options),
    /// Tests the code that handles memory itself with the compiler's address sanitizer
    Sanitize,
    /// Reduces in real processes of which one is killed at a random moment, again and again
    SoakKill(soak_kill::Options),
    /// Runs the tests, ordinary ones first; on Debian as root it first installs the packages they need
    Test(test::Options),
    /// Formats the code and applies what clippy suggests
    Fix,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::BenchReduce => bench_reduce::bench_reduce(),
        Task::BenchRivals(options) => bench_rivals::bench_rivals(&options),
        Task::Check => check::check(),
        Task::Fix => check::fix(),
        Task::Fuzz(options) => fuzz::fuzz(&options),
        Task::Lines => lines::lines(),
        Task::Look { page } => look::look(&page.unwrap_or_else(test::report)).map(drop),
        Task::Mpi4py(options) => mpi4py::mpi4py(&options),
        Task::Openfoam(options) => openfoam::openfoam(&options),
        Task::Sanitize => sanitize::sanitize(),
        Task::SoakKill(options) => soak_kill::soak_kill(&options),
        Task::Test(options) => test::test(&options),
    };
    if let Err(error) = result {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
