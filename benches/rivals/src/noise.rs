//! A computation of fixed work in a job, beside one that nobody manages; and how often managers wake while ranks sleep.

use std::{
    env, fs, hint,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::{
    family::{above_sleepers, end},
    manager::Manager,
    network::Network,
    slurm::Slurm,
};

/// How long and how often is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many pieces of fixed work each rank does in a round.
    #[arg(long, default_value_t = 50)]
    pieces: u32,
    /// The steps of a piece: a dependent multiplication and more each.
    #[arg(long, default_value_t = 20_000_000)]
    steps: u64,
    /// How often each is measured, in turns.
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// How long the ranks sleep while the wake-ups of process managers are counted, in seconds.
    #[arg(long, default_value_t = 5)]
    idle: u64,
    /// Write one JSON object a row.
    #[arg(long)]
    json: bool,
    /// Be a rank that computes.
    #[arg(long, hide = true)]
    computes: bool,
}

/// The times of one contestant's pieces.
#[derive(Serialize)]
struct Work {
    manager: &'static str,
    ranks: u32,
    /// One for each rank and repetition, in the order of the pieces.
    seconds: Vec<Vec<f64>>,
}

/// The voluntary context switches of all threads of a manager's processes.
#[derive(Serialize)]
struct Idle {
    manager: &'static str,
    hosts: u8,
    processes: usize,
    threads: usize,
    idle_s: f64,
    wakes: Vec<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.computes {
        return compute(arguments);
    }
    measure_work(arguments)?;
    if !arguments.json {
        println!(
            "\n| two ranks sleep | hosts | processes | threads | wake-ups in {} s |",
            arguments.idle
        );
        println!("|---|---|---|---|---|");
    }
    measure_idle(arguments, 1, None)?;
    match Network::new(2) {
        Ok(network) => measure_idle(arguments, 2, Some(&network)),
        Err(error) => {
            eprintln!("ropewalk-rivals: one host only: {error:#}");
            Ok(())
        }
    }
}

/// As many ranks as there are processors compute, below nobody and below each manager, in turns.
fn measure_work(arguments: &Arguments) -> anyhow::Result<()> {
    let ranks = u32::try_from(thread::available_parallelism()?.get())?;
    let slurm = Slurm::start()
        .inspect_err(|error| eprintln!("ropewalk-rivals: there is no srun: {error:#}"))
        .ok();
    let mut contestants = vec!["nobody", "ropewalk", "Hydra"];
    contestants.extend(slurm.iter().map(|_| "srun"));
    let mut rows: Vec<_> = contestants
        .into_iter()
        .map(|manager| Work {
            manager,
            ranks,
            seconds: Vec::new(),
        })
        .collect();
    for _ in 0..arguments.repetitions.max(1) {
        for row in &mut rows {
            let commands = match (row.manager, &slurm) {
                ("nobody", _) => (0..ranks).map(|_| Ok(None)).collect::<anyhow::Result<Vec<_>>>()?,
                ("srun", Some(slurm)) => vec![Some(slurm.srun(ranks))],
                (name, _) => {
                    let manager = match name {
                        "Hydra" => Manager::Hydra,
                        _ => Manager::Ropewalk,
                    };
                    let mut command = manager.command()?;
                    command.args(["-n", &ranks.to_string()]);
                    vec![Some(command)]
                }
            };
            row.seconds.extend(times_of(commands, arguments)?);
            ensure!(
                row.seconds.len().is_multiple_of(ranks as usize),
                "a rank said nothing"
            );
        }
    }
    if !arguments.json {
        println!("| {ranks} ranks compute below | mean, ms | worst, ms |");
        println!("|---|---|---|");
    }
    for row in rows {
        if arguments.json {
            println!("{}", serde_json::to_string(&row)?);
            continue;
        }
        let all: Vec<f64> = row.seconds.concat();
        let worst = all.iter().copied().fold(0.0, f64::max);
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        println!("| {} | {:.3} | {:.3} |", row.manager, mean * 1e3, worst * 1e3);
    }
    Ok(())
}

/// Runs this program as ranks, below each command or alone, all at once; the times that they print.
fn times_of(commands: Vec<Option<Command>>, arguments: &Arguments) -> anyhow::Result<Vec<Vec<f64>>> {
    let own = env::current_exe().context("where this program is cannot be found")?;
    let (pieces, steps) = (arguments.pieces.to_string(), arguments.steps.to_string());
    let words = ["noise", "--computes", "--pieces", &pieces, "--steps", &steps];
    let start = |command: Option<Command>| {
        let mut command = match command {
            Some(mut command) => {
                command.arg(&own);
                command
            }
            None => Command::new(&own),
        };
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().with_context(|| format!("cannot run {command:?}"))
    };
    let children: Vec<Child> = commands.into_iter().map(start).collect::<Result<_, _>>()?;
    let mut times = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "a job ended with {}", output.status);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            times.push(serde_json::from_str(line)?);
        }
    }
    Ok(times)
}

/// A rank: the times of its pieces.
fn compute(arguments: &Arguments) -> anyhow::Result<()> {
    let mut seconds = Vec::new();
    for _ in 0..arguments.pieces {
        let begin = Instant::now();
        let mut state = 1_u64;
        for _ in 0..arguments.steps {
            state = hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        seconds.push(begin.elapsed().as_secs_f64());
    }
    println!("{}", serde_json::to_string(&seconds)?);
    Ok(())
}

fn measure_idle(arguments: &Arguments, hosts: u8, network: Option<&Network>) -> anyhow::Result<()> {
    // Ropewalk's processes watch each other: the longer a silence may last, the less often they send.
    let contestants: [(_, _, &[&str]); 3] = [
        ("ropewalk", Manager::Ropewalk, &[]),
        ("ropewalk --detect 30", Manager::Ropewalk, &["--detect", "30"]),
        ("Hydra", Manager::Hydra, &[]),
    ];
    for (name, manager, options) in contestants {
        let mut command = manager.command()?;
        command.args(options);
        if let Some(network) = network {
            command.args(network.options(manager, hosts)).args(["-ppn", "1"]);
        }
        command.args(["-n", "2", "sleep", "1000"]);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {command:?}"))?;
        let counted = count_wakes(child.id(), arguments);
        end(&mut child)?;
        let row = Idle {
            manager: name,
            hosts,
            ..counted?
        };
        match arguments.json {
            true => println!("{}", serde_json::to_string(&row)?),
            false => println!(
                "| {} | {hosts} | {} | {} | {:?} |",
                row.manager, row.processes, row.threads, row.wakes
            ),
        }
    }
    Ok(())
}

fn count_wakes(manager: u32, arguments: &Arguments) -> anyhow::Result<Idle> {
    let above = above_sleepers(manager, 2)?;
    let mut wakes = Vec::new();
    let mut threads = 0;
    for _ in 0..arguments.repetitions.max(1) {
        let (before, _) = switches(&above)?;
        thread::sleep(Duration::from_secs(arguments.idle));
        let (after, count) = switches(&above)?;
        wakes.push(after.saturating_sub(before));
        threads = count;
    }
    Ok(Idle {
        manager: "",
        hosts: 0,
        processes: above.len(),
        threads,
        idle_s: arguments.idle as f64,
        wakes,
    })
}

/// The voluntary context switches of all threads of these processes so far, and the number of threads.
fn switches(processes: &[u32]) -> anyhow::Result<(u64, usize)> {
    let (mut sum, mut threads) = (0, 0);
    for process in processes {
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            sum += voluntary(&status).context("the kernel tells no voluntary_ctxt_switches")?;
            threads += 1;
        }
    }
    Ok((sum, threads))
}

fn voluntary(status: &str) -> Option<u64> {
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    value.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Switches that a thread did not want do not count.
    #[test]
    fn voluntary_switches_are_read() {
        let status = "Name:\tsleep\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t34\n";
        assert_eq!(voluntary(status), Some(12));
        assert_eq!(voluntary("Name:\tsleep\n"), None);
    }
}
