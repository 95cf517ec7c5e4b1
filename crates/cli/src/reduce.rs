//! `ropewalk reduce`: reduces array files on several processes.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    io::{self, Write},
    num::NonZeroU32,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::npy::{ArrayFile, ElementType};
use anyhow::{Context, anyhow};
use ropewalk_launch::{Ending, JobEvent, JobSpec, Launcher, OnFailure, Verdict};
use ropewalk_names::Rank;

use super::output_file::OutputFile;

/// Reduce NumPy arrays of equal shape and type, element by element
///
/// Integers wrap and NaN spreads as in NumPy. Floating-point results are the same to the last bit in every run
/// with the same files and number of processes. The output appears when it is complete, or not at all.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What is done to the elements
    #[arg(long, value_enum)]
    op: Operator,
    /// How many processes share the files; never more than there are files
    #[arg(short, long = "processes", value_name = "N", default_value = "4")]
    n: NonZeroU32,
    /// Where the result goes: a file, which is replaced, a pipe or a device; - is the standard output
    #[arg(short, long, value_name = "OUT.npy")]
    output: PathBuf,
    /// The arrays
    #[arg(required = true, value_name = "IN.npy")]
    inputs: Vec<PathBuf>,
}

/// The operations on elements.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Operator {
    /// The largest, or NaN if there is one
    Max,
    /// The smallest, or NaN if there is one
    Min,
    /// The product; integers wrap
    Prod,
    /// The sum; integers wrap
    Sum,
}

/// Runs the command: 0 if the output is written, 2 if the files given are at fault, 1 for any other failure, 128 and
/// the signal if one ended it.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let prepared = check_inputs(&arguments.inputs).and_then(|()| Ok(OutputFile::prepare(&arguments.output)?));
    let output = match prepared {
        Ok(output) => output,
        Err(error) => return fail(&error, ExitCode::from(2)),
    };
    match reduce(arguments, output) {
        Ok(code) => code,
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

/// Says in one line what is wrong.
pub(crate) fn fail(error: &anyhow::Error, code: ExitCode) -> ExitCode {
    eprintln!("ropewalk reduce: {error:#}");
    code
}

/// Checks before any process is started that all files are arrays of one kind.
fn check_inputs(paths: &[PathBuf]) -> anyhow::Result<()> {
    let mut kinds = Vec::with_capacity(paths.len());
    for path in paths {
        let file = ArrayFile::open(path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        kinds.push(Kind::of(&file));
    }
    let Some((odd, usual)) = odd_one_out(&kinds) else {
        return Ok(());
    };
    let others = match &kinds[..] {
        [_, _] => paths[1 - odd].display().to_string(),
        _ => "most of the others".to_owned(),
    };
    Err(anyhow!(
        "{}: {}",
        paths[odd].display(),
        kinds[odd].difference(usual, &others)
    ))
}

/// What all arrays of one reduction have in common. The order of bytes may differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    element: ElementType,
    shape: String,
    fortran_order: bool,
}

impl Kind {
    fn of(file: &ArrayFile) -> Self {
        let header = file.header();
        Self {
            element: header.element(),
            shape: header.shape_text(),
            fortran_order: header.fortran_order(),
        }
    }

    /// How this kind differs from the one that `others` have, in a person's words.
    fn difference(&self, usual: &Self, others: &str) -> String {
        let say = |what: &str, this: &dyn fmt::Display, usual: &dyn fmt::Display| {
            format!("its {what} is {this}, that of {others} {usual}")
        };
        if self.element != usual.element {
            say("element type", &self.element, &usual.element)
        } else if self.shape != usual.shape {
            say("shape", &self.shape, &usual.shape)
        } else {
            let name = |kind: &Self| if kind.fortran_order { "Fortran's" } else { "C's" };
            say("order of elements", &name(self), &name(usual))
        }
    }
}

/// The first of a minority, and what the majority is; if there is no majority, the first one sets the rule.
fn odd_one_out(kinds: &[Kind]) -> Option<(usize, &Kind)> {
    let mut counts: BTreeMap<&Kind, usize> = BTreeMap::new();
    for kind in kinds {
        *counts.entry(kind).or_default() += 1;
    }
    // Of several equal maxima `max_by_key` takes the last, which is the first here.
    let usual = kinds.iter().rev().max_by_key(|kind| counts[kind])?;
    let odd = kinds.iter().position(|kind| kind != usual)?;
    Some((odd, usual))
}

fn reduce(arguments: &Arguments, output: OutputFile) -> anyhow::Result<ExitCode> {
    let executable = std::env::current_exe().context("cannot find the ropewalk executable")?;
    let files = u32::try_from(arguments.inputs.len()).unwrap_or(u32::MAX);
    let mut launcher = Launcher::start(JobSpec {
        arguments: worker_arguments(arguments, &output.content_path()),
        ranks: arguments.n.get().min(files).min(JobSpec::RANKS_MAX),
        // The reduction survives those that are lost; whether it did is for rank 0 to say.
        on_failure: OnFailure::Continue,
        forward_signals: true,
        ..JobSpec::new(&executable, &executable)
    })?;
    let verdict = follow(&mut launcher)?;
    if verdict.ending != Ending::Completed {
        eprintln!("ropewalk reduce: no result: {verdict}");
        return Ok(ExitCode::from(u8::try_from(verdict.exit_code()).unwrap_or(1)));
    }
    let failures = &verdict.failures;
    if failures.iter().any(|failure| failure.rank == Rank(0)) {
        // The first in time is the cause, the others follow from it.
        eprintln!("ropewalk reduce: no result: {}", failures[0]);
        return Ok(ExitCode::FAILURE);
    }
    for failure in failures {
        eprintln!("ropewalk reduce: {failure}; the result is complete all the same");
    }
    output.commit()?;
    Ok(ExitCode::SUCCESS)
}

fn worker_arguments(arguments: &Arguments, output: &Path) -> Vec<OsString> {
    let operator = clap::ValueEnum::to_possible_value(&arguments.op);
    let operator = operator.expect("no operator is hidden").get_name().to_owned();
    let mut words: Vec<OsString> = vec!["reduce-worker".into(), "--op".into(), operator.into()];
    words.extend(["--output".into(), output.into(), "--".into()]);
    words.extend(arguments.inputs.iter().map(Into::into));
    words
}

/// Passes on what the workers say until they are done.
fn follow(launcher: &mut Launcher) -> anyhow::Result<Verdict> {
    while let Some(event) = launcher.next_event(None)? {
        match event {
            // Workers print nothing but errors. If nobody reads them the reduction goes on.
            JobEvent::Output { line, .. } => drop(io::stderr().write_all(&line)),
            JobEvent::Finished(verdict) => return Ok(verdict),
            _ => {}
        }
    }
    Err(anyhow!("the workers were lost without a word"))
}
