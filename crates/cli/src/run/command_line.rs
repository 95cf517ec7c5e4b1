//! Reads the words of `ropewalk run`: the options of MPICH's mpiexec (Hydra), with one dash or two, and our own.
//!
//! [`options`] has a row for each option: how it is spelled, how far it reaches, its help, and what it does. Parser,
//! help, manual page, completions and suggestions follow from these rows. [`settings`] makes a job of all that was
//! said.

mod binding;
mod checkpoints;
mod config_file;
mod failures;
mod given;
mod help;
mod hosts;
mod launchers;
mod network;
mod options;
mod other_launchers;
mod programs;
mod resources;
mod settings;

use std::{
    env,
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context;
use ropewalk_fabric::JobKey;
use ropewalk_launch::{BindingError, CountedParts, JobSpec, Part, count_parts};

use self::settings::Settings;
use super::{checkpoints::CheckpointOptions, pattern::Pattern, shown_ranks::ShownRanks};

pub(super) use self::help::help;
pub(crate) use self::help::{documented, documented_some, reader_notes, reader_variables};

/// The user's wish.
#[derive(Debug)]
pub(super) enum Command {
    Help,
    Info,
    Run(Box<Request>),
    Version,
}

/// A job, and what this command does beside running it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) spec: JobSpec,
    pub(super) output: Output,
    /// Options of the checkpoints' supervisor; `None` if the job has none.
    pub(super) checkpoints: Option<CheckpointOptions>,
    /// The program is a solver of OpenFOAM, whose case is prepared before each attempt.
    pub(super) is_openfoam: bool,
}

/// The output of the job, and reports about it.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Stands before each line of output.
    pub(super) prefix: Option<Pattern>,
    /// Files for standard output and standard error, instead of those of this command.
    pub(super) files: [Option<Pattern>; 2],
    /// A folder with a file for each rank and stream.
    pub(super) folder: Option<OutputFolder>,
    pub(super) shown_ranks: ShownRanks,
    pub(super) prints_rank_map: bool,
    pub(super) print_exit_codes: bool,
    pub(super) log_json: bool,
    pub(super) verbose: bool,
    /// Sentences about options that are passed over, shown if verbose.
    pub(super) notices: Vec<String>,
    /// Where Prometheus reads metrics.
    pub(super) metrics: Option<SocketAddr>,
    /// The file of a page about the job.
    pub(super) report: Option<PathBuf>,
}

/// Where the output of each rank is written to files.
#[derive(Debug)]
pub(super) struct OutputFolder {
    pub(super) path: PathBuf,
    /// The output goes where it would go without the folder too.
    pub(super) is_shown: bool,
}

/// The world around the words: variables and files.
pub(super) struct Surroundings<'a> {
    pub(super) agent: PathBuf,
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub(super) read: &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>,
    /// Counts the parts of this host.
    pub(super) count_parts: &'a dyn Fn(Part) -> Result<CountedParts, BindingError>,
    /// Reads a key, which nobody but its owner may read.
    pub(super) read_key: &'a dyn Fn(&Path) -> std::io::Result<JobKey>,
}

impl Surroundings<'_> {
    /// The variables and files of this process.
    pub(super) fn of_this_process() -> anyhow::Result<Self> {
        Ok(Self {
            agent: env::current_exe().context("cannot find my own executable")?,
            variable: &|name| env::var_os(name),
            read: &|path| fs::read(path),
            count_parts: &count_parts,
            read_key: &JobKey::read_from,
        })
    }
}

/// Reads the words of a command.
pub(super) fn parse(words: Vec<OsString>, around: &Surroundings<'_>) -> anyhow::Result<Command> {
    let mut settings = Settings::new(around);
    settings.read_unasked(&words)?;
    settings.take(words)?;
    match settings.reading.question.take() {
        Some(question) => Ok(question),
        None => settings.finish().map(|request| Command::Run(Box::new(request))),
    }
}

/// Divides the words of another command, which has some of these options: the others, and those with their values. Ends
/// at `--`.
pub(crate) fn divide(words: Vec<OsString>, known: &[&str]) -> (Vec<OsString>, Vec<OsString>) {
    let (mut others, mut options) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            others.push(word);
            break;
        }
        let option = word.to_str().and_then(settings::option_name);
        let (name, value) = option.map_or(("", None), |option| match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        });
        match options::find(name).filter(|(row, _)| row.is_one_of(known)) {
            Some((row, _)) => {
                options.push(word.clone());
                if row.value().is_some() && value.is_none() {
                    options.extend(words.next());
                }
            }
            None => others.push(word),
        }
    }
    others.extend(words);
    (others, options)
}

/// The job that some options make, for a command that has these of them and variables.
pub(crate) fn some_options(words: Vec<OsString>, known: &'static [&'static str]) -> anyhow::Result<JobSpec> {
    let around = Surroundings::of_this_process()?;
    let mut settings = Settings::new(&around);
    settings.reading.known = Some(known);
    settings.take(words)?;
    settings.programs.current.program = "program".into();
    Ok(settings.finish()?.spec)
}

/// The answer to `-info`: as Hydra's, the launchers and batch systems to choose among.
pub(super) fn info() -> String {
    let choices = |name| options::find(name).map_or(String::new(), |(row, _)| row.choices().join(" "));
    format!(
        "ropewalk build details:\n    \
         Version:                                 {}\n    \
         Process Manager:                         pmi\n    \
         Launchers available:                     {}\n    \
         Resource management kernels available:   {}",
        env!("CARGO_PKG_VERSION"),
        choices("launcher"),
        choices("rmk")
    )
}

#[cfg(test)]
mod hydra_tests;
#[cfg(test)]
mod tests;
