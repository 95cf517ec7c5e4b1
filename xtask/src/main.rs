//! Checks, tests and measurements of the project: `cargo xtask help`.

mod check;
mod project;
mod shell;

use std::process::ExitCode;

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
    /// Looks at everything and changes nothing: format, rules of the house, clippy, documentation, licences
    Check,
    /// Formats the code and applies what clippy suggests
    Fix,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Check => check::check(),
        Task::Fix => check::fix(),
    };
    if let Err(error) = result {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
