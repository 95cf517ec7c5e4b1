//! The `ropewalk` command.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{agent, bench, demo, demo_worker, info, plan, reduce, reduce_worker, run};

/// Runs parallel jobs, and keeps them going.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The process manager of one host; started by others, not by hand.
    #[command(hide = true)]
    Agent,
    /// Measure what this machine and ropewalk do.
    Bench(bench::Arguments),
    /// The process at the other end of a measurement; started by others, not by hand.
    #[command(hide = true)]
    BenchTarget,
    /// See a seismic image come out right although a worker is killed in the middle.
    Demo(demo::Arguments),
    #[command(hide = true)]
    DemoWorker(demo_worker::Arguments),
    Info(info::Arguments),
    Plan(plan::Arguments),
    Reduce(reduce::Arguments),
    #[command(hide = true)]
    ReduceWorker(reduce_worker::Arguments),
    /// Run N processes of a program: MPI programs (MPICH), and any other.
    Run(run::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Agent => agent::run(),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchTarget => bench::target::run(),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::DemoWorker(arguments) => demo_worker::run(arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Reduce(arguments) => reduce::run(&arguments),
        Command::ReduceWorker(arguments) => reduce_worker::run(&arguments),
        Command::Run(arguments) => run::run(arguments),
    }
}
