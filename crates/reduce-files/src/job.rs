//! The job of workers that reduces the arrays.

use std::{num::NonZeroU32, path::PathBuf, process::ExitCode, thread::available_parallelism};

use anyhow::{Context, anyhow, bail};
use ropewalk_launch::{
    DealOrder, Ending, Failure, FailureKind, JobSpec, Launcher, OnFailure, OnStopped, StdinSource, Verdict,
    hosts::total_slots,
};
use ropewalk_reduce::Sources;

use super::{
    arrays::{Arrays, Kind},
    command::fail,
    operator::Operator,
    task::{Content, Task},
    watch::{Told, Watch},
};
use ropewalk_output_file::{OutputFile, OutputFileError};

/// A reduction that is ready to begin.
pub(super) struct Reduction {
    operator: Operator,
    inputs: Vec<PathBuf>,
    arrays: Arrays,
    output: OutputFile,
    /// The job, but for what depends on the arrays.
    spec: JobSpec,
    processes: Option<NonZeroU32>,
}

impl Reduction {
    /// Checks all that can be checked before a process is started.
    ///
    /// # Errors
    /// If files are at fault.
    pub(super) fn prepare(
        operator: Operator,
        inputs: Vec<PathBuf>,
        processes: Option<NonZeroU32>,
        output: Result<OutputFile, OutputFileError>,
        spec: JobSpec,
    ) -> anyhow::Result<Self> {
        if inputs.len() > Sources::MEMBERS_MAX as usize {
            let (found, most) = (inputs.len(), Sources::MEMBERS_MAX);
            bail!("{found} arrays are more than the {most} that are reduced at once");
        }
        let arrays = Arrays::look_at(&inputs)?;
        if spec.hosts.is_empty() {
            arrays.are_all_here(&inputs)?;
        }
        Ok(Self {
            operator,
            inputs,
            arrays,
            output: output?,
            spec,
            processes,
        })
    }

    /// Runs the job, and again if it lost processes and has no result: all of them, or one before they knew each other,
    /// or the one that wrote.
    ///
    /// # Errors
    /// If there is no result, and the files are not to blame.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut kind = self.arrays.kind.clone();
        for attempt in 1.. {
            let (told, verdict) = self.attempt(kind.clone())?;
            if let Some(fault) = told.fault(&self.inputs, &verdict) {
                return Ok(fail(&anyhow!(fault), ExitCode::from(2)));
            }
            let goes_on = matches!(
                verdict.ending,
                Ending::Completed | Ending::AgentLost { continued: true, .. }
            );
            if !goes_on {
                eprintln!("ropewalk reduce: no result: {verdict}");
                return Ok(ExitCode::from(u8::try_from(verdict.exit_code()).unwrap_or(1)));
            }
            if told.is_written {
                return self.finish(&verdict);
            }
            if kind.is_none() && told.kind.is_some() {
                kind = told.kind;
                continue;
            }
            let failures = &verdict.failures;
            if let Some(accident) = failures.iter().find(|failure| is_accident(failure))
                && attempt < ATTEMPTS_MAX
            {
                eprintln!("ropewalk reduce: {accident}; the reduction begins again");
                continue;
            }
            // The first in time is the cause, the others follow from it.
            match (told.error, failures.first()) {
                (Some(error), _) => bail!("no result: {error}"),
                (None, Some(failure)) => bail!("no result: {failure}"),
                (None, None) => bail!("no result: the processes ended without a word"),
            }
        }
        unreachable!("the loop ends with its last attempt")
    }

    fn finish(self, verdict: &Verdict) -> anyhow::Result<ExitCode> {
        if let Err(error) = self.arrays.are_unchanged(&self.inputs) {
            return Ok(fail(&error, ExitCode::from(2)));
        }
        for failure in verdict.to_string().lines() {
            eprintln!("ropewalk reduce: {failure}; the result is complete all the same");
        }
        self.output.commit()?;
        Ok(ExitCode::SUCCESS)
    }

    fn attempt(&self, kind: Option<Kind>) -> anyhow::Result<(Told, Verdict)> {
        let executable = std::env::current_exe().context("cannot find the ropewalk executable")?;
        let task = Task::new(
            self.operator,
            kind,
            !self.spec.hosts.is_empty(),
            self.spec.time_limits.detect,
            &self.inputs,
            Content::of(&self.output)?,
        );
        task.give().context("cannot hand the task to the processes")?;
        let mut spec = self.spec.clone();
        spec.first.program = executable.into();
        spec.first.arguments = vec!["reduce-worker".into()];
        spec.first.ranks = self.ranks();
        // The reduction survives those that are lost.
        spec.reactions.on_failure = OnFailure::Continue;
        spec.reactions.on_stopped = OnStopped::Fail;
        spec.stdin = StdinSource::InheritAll;
        // A host may have files that no other has.
        spec.placement.order = DealOrder::ByNode;
        let mut launcher = Launcher::start(spec)?;
        Watch::new(&self.output, self.spec.time_limits.detect).follow(&mut launcher)
    }

    /// How many processes there are.
    fn ranks(&self) -> u32 {
        let files = self.inputs.len() as u32;
        let hosts = self.spec.hosts.len() as u32;
        let slots = match hosts {
            0 => available_parallelism().map_or(1, |cores| cores.get() as u32),
            _ => total_slots(&self.spec.hosts),
        };
        let wanted = match (&self.processes, &self.arrays.kind) {
            (Some(processes), _) => processes.get(),
            // Some host has what is not here.
            (None, _) if self.arrays.are_all_here(&self.inputs).is_err() => slots,
            (None, None) => slots,
            (None, Some(kind)) => {
                let bytes = kind.header(kind.element).data_size() * u64::from(files);
                let worth = u32::try_from(bytes / BYTES_WORTH_A_PROCESS).unwrap_or(u32::MAX);
                slots.min(worth.max(1))
            }
        };
        // A host may have the only copy of a file.
        wanted.min(files.max(hosts)).min(JobSpec::RANKS_MAX)
    }
}

/// A failure of a process that another start may be spared.
fn is_accident(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::Signalled(_) | FailureKind::Stopped { .. }
    )
}

/// How often the job is started at most.
const ATTEMPTS_MAX: u32 = 5;
/// A process more is worth its start for so many bytes.
const BYTES_WORTH_A_PROCESS: u64 = 16 << 20;
