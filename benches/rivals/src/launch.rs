//! Starting N processes that do nothing, beside a bare loop and Hydra.

use std::{
    io::Read,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::ropewalk;

/// How often what is started.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many processes, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256, 1000])]
    processes: Vec<u32>,
    /// How often each is measured; the median is shown.
    #[arg(long, default_value_t = 7)]
    repetitions: usize,
    /// What is started.
    #[arg(long, default_value = "/bin/true")]
    program: String,
}

/// Who starts them.
#[derive(Clone, Copy)]
enum Starter {
    /// A loop that makes two pipes for each, starts it by posix_spawn, reads and waits.
    Loop,
    Ropewalk,
    Hydra,
}

/// Measures all in turn, so that what else the machine does hits all alike.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let has_hydra = Command::new("mpiexec.hydra").arg("--version").output().is_ok();
    let starters = [Starter::Loop, Starter::Ropewalk, Starter::Hydra];
    let starters = &starters[..if has_hydra { 3 } else { 2 }];
    println!("| N | loop, ms | ropewalk, ms | Hydra, ms | ropewalk / loop | ropewalk / Hydra |");
    println!("|---|---|---|---|---|---|");
    for &processes in &arguments.processes {
        let mut times = vec![Vec::new(); starters.len()];
        for _ in 0..arguments.repetitions.max(1) {
            for (starter, times) in starters.iter().zip(&mut times) {
                times.push(starter.time(processes, &arguments.program)?);
            }
        }
        let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
        let (bare, ours) = (medians[0], medians[1]);
        let (hydra, ratio) = match medians.get(2) {
            Some(hydra) => (format!("{hydra:.1}"), format!("{:.2}", ours / hydra)),
            None => ("not installed".to_owned(), String::new()),
        };
        println!(
            "| {processes} | {bare:.1} | {ours:.1} | {hydra} | {:.2} | {ratio} |",
            ours / bare
        );
    }
    Ok(())
}

impl Starter {
    fn time(self, processes: u32, program: &str) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        match self {
            Self::Loop => start_in_a_loop(processes, program)?,
            Self::Ropewalk => {
                run_quietly(Command::new(ropewalk()?).arg("run"), processes, program)?;
            }
            Self::Hydra => run_quietly(&mut Command::new("mpiexec.hydra"), processes, program)?,
        }
        Ok(begin.elapsed())
    }
}

/// The standard library takes posix_spawn(3) for what needs nothing else.
fn start_in_a_loop(processes: u32, program: &str) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let children: Result<Vec<_>, _> = (0..processes).map(|_| command.spawn()).collect();
    let mut output = Vec::new();
    for mut child in children.with_context(|| format!("cannot start {program}"))? {
        if let Some(mut pipe) = child.stdout.take() {
            pipe.read_to_end(&mut output)?;
        }
        if let Some(mut pipe) = child.stderr.take() {
            pipe.read_to_end(&mut output)?;
        }
        child.wait()?;
    }
    Ok(())
}

fn run_quietly(command: &mut Command, processes: u32, program: &str) -> anyhow::Result<()> {
    command.args(["-n", &processes.to_string(), program]);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}
