//! `ropewalk bench`: what the machine gives, and what is made of it.

#![deny(
    clippy::print_stdout,
    reason = "it panics if nobody takes the output, which `output::print` says"
)]

mod cases;
mod crowd;
mod faults;
mod floors;
mod launch;
mod mpi;
mod network;
mod origin;
pub mod output;
mod pmi;
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
    /// From a fault to the verdict that names it, and until nothing is left, beside Hydra.
    Faults(faults::Arguments),
    /// Starting processes, beside a bare loop and Hydra.
    Launch(launch::Arguments),
    /// Starting MPI programs, on one host and on many, and the memory of launcher and agent, beside Hydra.
    Mpi(mpi::Arguments),
    /// Requests to the process manager, ours and Hydra's, beside an echo over a socketpair.
    Pmi(pmi::Arguments),
    Rpc(rpc::Arguments),
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> ExitCode {
    let result = match &arguments.what {
        What::Faults(arguments) => faults::run(arguments),
        What::Launch(arguments) => launch::run(arguments),
        What::Mpi(arguments) => mpi::run(arguments),
        What::Pmi(arguments) => pmi::run(arguments),
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
