//! Who starts jobs, and how long that takes.

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};

use crate::{median, ropewalk};

/// Who starts jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manager {
    Hydra,
    Ropewalk,
}

impl Manager {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Hydra => "Hydra",
            Self::Ropewalk => "ropewalk",
        }
    }

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

    /// Runs a job to its end.
    pub(crate) fn run(self, words: &[impl AsRef<OsStr>]) -> anyhow::Result<()> {
        let mut command = self.command()?;
        command.args(words);
        let status = command
            .status()
            .with_context(|| format!("cannot run {command:?}; Hydra comes with the Debian package mpich"))?;
        if !status.success() {
            bail!("{command:?} ended with {status}");
        }
        Ok(())
    }
}

/// The median time of each contestant in milliseconds.
pub(crate) fn medians_ms<const N: usize>(
    repetitions: usize,
    contestants: [&dyn Fn() -> anyhow::Result<()>; N],
) -> anyhow::Result<[f64; N]> {
    let mut times = in_turns(repetitions, &contestants)?.into_iter();
    Ok(contestants.map(|_| median(times.next().expect("each contestant has times")) * 1e3))
}

/// The times of each contestant in seconds. They run in turns, so that whatever else the machine does meets them all.
pub(crate) fn in_turns(
    repetitions: usize,
    contestants: &[&dyn Fn() -> anyhow::Result<()>],
) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut times = vec![Vec::new(); contestants.len()];
    for _ in 0..repetitions.max(1) {
        for (contestant, times) in contestants.iter().zip(&mut times) {
            let begin = Instant::now();
            contestant()?;
            times.push(begin.elapsed().as_secs_f64());
        }
    }
    Ok(times)
}
