//! `ropewalk sim`: parallel jobs in virtual time.

use std::process::ExitCode;

mod launch;
mod reduce;
mod seeds;

/// Simulate jobs on many hosts, by the machines that run them
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The start of large jobs, in trees of several arities
    Launch(launch::Arguments),
    /// Reductions: ours beside the paper's and those of MPI libraries
    Reduce(reduce::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.what {
        What::Launch(arguments) => launch::run(arguments),
        What::Reduce(arguments) => reduce::run(arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("ropewalk sim: {error:#}");
        ExitCode::from(2)
    })
}
