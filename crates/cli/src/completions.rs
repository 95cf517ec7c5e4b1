//! `ropewalk completions`.

use std::{io::Write, process::ExitCode};

use clap_complete::{Shell, generate};

/// Print what a shell needs to complete the words of this command.
///
/// For bash: `ropewalk completions bash > ~/.local/share/bash-completion/completions/ropewalk`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints it.
pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    generate(arguments.shell, &mut command, "ropewalk", &mut script);
    match std::io::stdout().write_all(&script) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk: cannot print the completions: {error}");
            ExitCode::FAILURE
        }
    }
}
