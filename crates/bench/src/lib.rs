//! `ropewalk bench`: remote calls and bulk transfers of this machine or cluster, beside what the machine can do.

#![deny(
    clippy::print_stdout,
    reason = "it panics if nobody takes the output, which `output::print` says"
)]

mod cases;
mod crowd;
mod floors;
mod origin;
pub mod output;
pub mod probes;
mod process;
mod protocol;
mod provider;
mod row;
mod rows;
mod rpc;
pub mod target;
mod timing;

use std::process::ExitCode;

use clap::Subcommand;

/// What `ropewalk bench` is told.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Rpc(rpc::Arguments),
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.what {
        What::Rpc(arguments) => rpc::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
