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

pub(crate) use self::sections::examples;

/// Print the manual page of this command or of one of its commands, or write a page for each of these.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder for the pages, ~/.local/share/man/man1 for example; or a command, as in `ropewalk man run`
    #[arg(value_name = "DIR|COMMAND", value_hint = clap::ValueHint::DirPath)]
    place: Option<PathBuf>,
}

/// Does it.
pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> ExitCode {
    command = command.disable_help_subcommand(true);
    command.build();
    let result = match &arguments.place {
        None => print(command),
        Some(place) => match named(&command, place).cloned() {
            Some(named) => print(named),
            None => write_all(command, place),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ropewalk: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command that is called so, or whose page is: `bench-reduce`, `ropewalk-bench-reduce`.
fn named<'a>(command: &'a clap::Command, name: &Path) -> Option<&'a clap::Command> {
    let page = command.get_display_name().unwrap_or(command.get_name());
    let (name, short) = (name.to_str()?, page.strip_prefix("ropewalk-").unwrap_or(page));
    if name == page || name == short {
        return Some(command);
    }
    command
        .get_subcommands()
        .find_map(|below| named(below, Path::new(name)))
}

fn print(command: clap::Command) -> anyhow::Result<()> {
    io::stdout()
        .write_all(&page(command)?)
        .context("cannot print the page")
}

fn write_all(command: clap::Command, folder: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write manual pages to {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    write_page(command, folder).with_context(failed)?;
    let said = writeln!(io::stdout(), "The manual pages are in {}.", folder.display());
    said.context("cannot say where the pages are")
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
