//! Starting N processes that do nothing, beside a bare loop and Hydra.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use anyhow::Context;

use crate::manager::{Manager, medians_ms};

/// How often what is started.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many processes, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256, 1000])]
    processes: Vec<u32>,
    /// How often each is measured; the median is shown.
    #[arg(long, default_value_t = 7)]
    repetitions: usize,
    /// The program to start.
    #[arg(long, default_value = "/bin/true")]
    program: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    println!("| N | loop, ms | ropewalk, ms | Hydra, ms | ropewalk / loop | ropewalk / Hydra | goal |");
    println!("|---|---|---|---|---|---|---|");
    let program = &arguments.program;
    for &processes in &arguments.processes {
        let words = ["-n", &processes.to_string(), program];
        let [bare, ours, hydra] = medians_ms(
            arguments.repetitions,
            [
                &|| start_in_a_loop(processes, program),
                &|| Manager::Ropewalk.run(&words),
                &|| Manager::Hydra.run(&words),
            ],
        )?;
        println!(
            "| {processes} | {bare:.1} | {ours:.1} | {hydra:.1} | {:.2} | {:.2} | {} |",
            ours / bare,
            ours / hydra,
            goal(processes)
        );
    }
    Ok(())
}

/// The time, in times of Hydra's, that starting so many processes may take.
fn goal(processes: u32) -> &'static str {
    match processes {
        1 => "at most 1.2",
        16.. => "at most 1.1",
        _ => "",
    }
}

/// Makes two pipes for each process, starts it, reads and waits. The standard library takes posix_spawn(3) for what
/// needs nothing else.
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
