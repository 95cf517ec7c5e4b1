//! `ropewalk sim`: parallel jobs in virtual time.

use std::process::ExitCode;

mod reduce;
mod seeds;
mod size;

/// Simulate jobs on many hosts, by the machines that run them
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Reductions: ours beside the paper's and those of MPI libraries
    Reduce(reduce::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let What::Reduce(arguments) = &arguments.what;
    reduce::run(arguments).unwrap_or_else(|error| {
        eprintln!("ropewalk sim: {error:#}");
        ExitCode::from(2)
    })
}
