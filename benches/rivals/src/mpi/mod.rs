//! What starting MPI programs takes, beside Hydra: time on one host, memory, time on many hosts.

mod hosts;
mod init;
mod memory;

use std::{
    ffi::OsString,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::ropewalk;

/// What is measured, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this; by default all.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How many ranks call MPI_Init and MPI_Finalize, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32])]
    ranks: Vec<u32>,
    /// How many processes run while memory is measured.
    #[arg(long, default_value_t = 1000)]
    processes: u32,
    /// How many hosts, which are network namespaces; that takes root and iproute2.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=99))]
    hosts: u8,
    /// How often each is measured; the median is shown.
    #[arg(long, default_value_t = 7)]
    repetitions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Agents on many hosts.
    Hosts,
    /// MPI_Init and MPI_Finalize of MPICH on this host.
    Init,
    /// Memory of launcher and agent.
    Memory,
}

/// Measures in turn, so that what else the machine does hits both alike.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let is_wanted = |part| arguments.only.is_none_or(|only| only == part);
    if is_wanted(Part::Init) {
        init::measure(arguments)?;
    }
    if is_wanted(Part::Memory) {
        memory::measure(arguments)?;
    }
    if is_wanted(Part::Hosts) {
        hosts::measure(arguments)?;
    }
    Ok(())
}

/// Who starts programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    Hydra,
    Ropewalk,
}

impl Manager {
    /// The command up to its options.
    pub(crate) fn command(self) -> anyhow::Result<Command> {
        let mut command = match self {
            Self::Hydra => Command::new("mpiexec.hydra"),
            Self::Ropewalk => {
                let mut command = Command::new(ropewalk()?);
                command.arg("run");
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    fn time(self, words: &[OsString]) -> anyhow::Result<Duration> {
        let mut command = self.command()?;
        command.args(words);
        let begin = Instant::now();
        let status = command
            .status()
            .with_context(|| format!("cannot run {command:?}; Hydra comes with the Debian package mpich"))?;
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
        Ok(begin.elapsed())
    }
}

/// The medians of ours and Hydra's, in milliseconds; `words` has the options for each.
fn medians(repetitions: usize, words: impl Fn(Manager) -> Vec<OsString>) -> anyhow::Result<(f64, f64)> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..repetitions.max(1) {
        for (manager, times) in [Manager::Ropewalk, Manager::Hydra].into_iter().zip(&mut times) {
            times.push(manager.time(&words(manager))?);
        }
    }
    let [ours, hydra] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    });
    Ok((ours, hydra))
}
