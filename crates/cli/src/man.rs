//! `ropewalk man`.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap_mangen::Man;

/// Print the manual page of this command, or write a page for each of its commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder for the pages, ~/.local/share/man/man1 for example
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    folder: Option<PathBuf>,
}

/// Does it.
pub(crate) fn run(arguments: &Arguments, command: clap::Command) -> ExitCode {
    let result = match &arguments.folder {
        None => print(command),
        Some(folder) => write_all(command, folder),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(command: clap::Command) -> anyhow::Result<()> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    io::stdout().write_all(&page).context("cannot print the page")
}

fn write_all(command: clap::Command, folder: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(command, folder).with_context(failed)
}
