//! `ropewalk man`.

mod sections;

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

fn print(mut command: clap::Command) -> anyhow::Result<()> {
    command.build();
    io::stdout()
        .write_all(&page(command)?)
        .context("cannot print the page")
}

fn write_all(command: clap::Command, folder: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_page(command, folder).with_context(failed)
}

/// Writes the page of a command, and those of the commands below it.
fn write_page(command: clap::Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_page(below.clone(), folder)?;
    }
    let file = folder.join(Man::new(command.clone()).get_filename());
    Ok(fs::write(file, page(command)?)?)
}

/// The page of a command that was built.
pub(crate) fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    page.extend(sections::of(&name).bytes());
    Ok(page)
}
