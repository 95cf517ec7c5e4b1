//! `ropewalk bench`: what the machine gives, and what is made of it.

mod cases;
mod crowd;
pub(crate) mod floors;
mod origin;
pub(crate) mod process;
mod protocol;
mod provider;
mod row;
mod rpc;
pub(crate) mod target;
mod timing;

use std::process::ExitCode;

use clap::Subcommand;

/// What `ropewalk bench` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Rpc(rpc::Arguments),
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let What::Rpc(arguments) = &arguments.what;
    match rpc::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
