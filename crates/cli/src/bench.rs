//! `ropewalk bench`: measurements of this machine or cluster.

mod beside;
mod call;
mod picture;
mod reduce;
mod rows;
mod task;
mod worker;

use std::{ffi::OsString, process::ExitCode};

pub(crate) use self::worker::{Arguments as WorkerArguments, run as work};

/// The arguments of `ropewalk bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Debug, clap::Subcommand)]
enum Measurement {
    Reduce(reduce::Arguments),
    Rpc(ropewalk_bench::Arguments),
}

/// Runs the command. `run_words` are options of `ropewalk run`, for the measurement that starts ranks.
pub(crate) fn run(arguments: &Arguments, run_words: Vec<OsString>) -> ExitCode {
    let result = match &arguments.measurement {
        Measurement::Reduce(arguments) => reduce::run(arguments, run_words),
        Measurement::Rpc(arguments) => ropewalk_bench::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
