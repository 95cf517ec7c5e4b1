//! Checks, tests and measurements of the project: `cargo xtask help`.

mod bench_files;
mod bench_reduce;
mod bench_rivals;
mod book;
mod chaos;
mod check;
mod debian;
mod dist;
mod flavours;
mod fuzz;
mod lines;
mod look;
mod mpi4py;
mod mpi_suites;
mod openfoam;
mod papers;
mod project;
mod python;
mod rig;
mod sanitize;
mod shell;
mod soak_files;
mod test;
mod wheels;

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
    /// Times the reduction of files beside NumPy's
    BenchFiles(bench_files::Options),
    /// Times the reduction beside MPI's, and writes the table in docs/benchmarks_of_reductions.md
    BenchReduce,
    /// Times the command beside Hydra, MPICH and Slurm's PMI library
    BenchRivals(bench_rivals::Options),
    /// Checks the links of the book, compiles its programs, runs its commands and builds its site
    Book(book::Options),
    /// Reduces in real processes on several hosts that are killed, stopped, cut off and starved
    Chaos(chaos::Options),
    /// Looks at everything and changes nothing: format, rules of the house, clippy, documentation, licences
    Check,
    /// Makes a tarball and a Debian package of command, libraries, headers and pages, in target/dist
    Dist(dist::Options),
    /// Starts programs of seven MPI libraries in every way that users do, and writes the table in the book
    Flavours(flavours::Options),
    /// Feeds every parser of foreign bytes with what it does not expect
    Fuzz(fuzz::Options),
    /// Counts lines of Rust by package, product and tests
    Lines,
    /// Opens pages in a headless browser, fails if its console shows anything, and takes pictures, narrow and wide,
    /// light and dark
    Look {
        /// The pages or SVG pictures; by default the demo's report
        pages: Vec<PathBuf>,
    },
    /// Runs mpi4py's own tests under ours and under Hydra or Open MPI's mpirun; they come from PyPI
    Mpi4py(mpi4py::Options),
    /// Runs the suites of MPICH and Open MPI under ours and under Hydra or mpirun, and writes the table in the book
    MpiSuites(mpi_suites::Options),
    /// Builds the function object for OpenFOAM, and kills solvers that it saves
    Openfoam(openfoam::Options),
    /// Makes the tables and figures of the papers anew, in docs/papers
    Papers(papers::Options),
    /// Installs the package for Python in a fresh environment, checks its types, and runs its tests and examples
    Python,
    /// Several hosts on this machine: namespaces with links of their own
    #[command(subcommand)]
    Rig(rig::Task),
    /// Tests the code that handles memory itself with the compiler's address sanitizer
    Sanitize,
    /// Reduces files in real processes of which some are killed at random moments, again and again
    SoakFiles(soak_files::Options),
    /// Runs the tests, ordinary ones first; on Debian as root it first installs the packages they need
    Test(test::Options),
    /// Makes the wheel for Python: package, extension module, command and C libraries, in target/wheels
    Wheel,
    /// Formats the code and applies what clippy suggests
    Fix,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::BenchFiles(options) => bench_files::bench_files(&options),
        Task::BenchReduce => bench_reduce::bench_reduce(),
        Task::BenchRivals(options) => bench_rivals::bench_rivals(&options),
        Task::Book(options) => book::book(&options),
        Task::Chaos(options) => chaos::chaos(&options),
        Task::Check => check::check(),
        Task::Dist(options) => dist::dist(&options),
        Task::Flavours(options) => flavours::flavours(&options),
        Task::Fix => check::fix(),
        Task::Fuzz(options) => fuzz::fuzz(&options),
        Task::Lines => lines::lines(),
        Task::Look { pages } => look::look_at_all(&pages),
        Task::Mpi4py(options) => mpi4py::mpi4py(&options),
        Task::MpiSuites(options) => mpi_suites::mpi_suites(&options),
        Task::Openfoam(options) => openfoam::openfoam(&options),
        Task::Papers(options) => papers::papers(&options),
        Task::Python => python::test(),
        Task::Rig(task) => rig::rig(&task),
        Task::Sanitize => sanitize::sanitize(),
        Task::SoakFiles(options) => soak_files::soak_files(&options),
        Task::Test(options) => test::test(&options),
        Task::Wheel => python::wheel(),
    };
    if let Err(error) = result {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
