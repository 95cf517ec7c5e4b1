//! `ropewalk reduce` of files beside NumPy, measured in turns on this machine.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rand_core::SeedableRng;
use rand_pcg::Pcg64;

use crate::{
    debian, project,
    shell::{cargo, run},
    soak_files::write_array,
};

/// The measurement.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many files
    #[arg(long, default_value_t = 64)]
    files: u32,
    /// How many mebibytes each has
    #[arg(long, default_value_t = 64)]
    mebibytes: u32,
    /// How often each command runs
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Where `ropewalk` is, if it is not to be built
    #[arg(long)]
    built: Option<PathBuf>,
}

/// Sums arrays whose files are in memory, by the whole command, and by NumPy with mapped files. Prints medians and the
/// most memory of all processes of the command, but for mapped files.
///
/// # Errors
/// If something cannot be built or run, or the results differ by more than rounding.
pub(crate) fn bench_files(options: &Options) -> anyhow::Result<()> {
    debian::provide()?;
    let built = match &options.built {
        Some(built) => built.clone(),
        None => {
            let words = "build --release --locked -p ropewalk-cli --bin ropewalk";
            run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
            project::target()?.join("release")
        }
    };
    let folder = tempfile::tempdir_in(project::target()?)?;
    let mut random = Pcg64::seed_from_u64(24);
    let mut inputs = Vec::new();
    for at in 0..options.files {
        let path = folder.path().join(format!("{at}.npy"));
        write_array(&path, options.mebibytes as usize * ((1 << 20) / 4), &mut random)?;
        inputs.push(path);
    }
    let ours = |processes: Option<&str>| {
        let mut command = Command::new(built.join("ropewalk"));
        command.args("reduce --op sum -o ours.npy".split(' '));
        command
            .args(processes.iter().flat_map(|count| ["-n", count]))
            .args(&inputs);
        command
    };
    let mut numpy = Command::new("/usr/bin/python3");
    numpy.args(["-c", NUMPY]).args(&inputs);
    let mut contestants = [
        ("NumPy", numpy),
        ("ropewalk reduce", ours(None)),
        ("ropewalk reduce -n 1", ours(Some("1"))),
        ("ropewalk reduce -n 2", ours(Some("2"))),
        ("ropewalk reduce -n 4", ours(Some("4"))),
    ];
    let mut rows: Vec<(Vec<Duration>, u64)> = vec![Default::default(); contestants.len()];
    for round in 0..=options.rounds {
        for ((_, command), (times, memory)) in contestants.iter_mut().zip(&mut rows) {
            // Files that are new, as those of NumPy are.
            for output in ["ours.npy", "theirs.npy"] {
                let _ = fs::remove_file(folder.path().join(output));
            }
            command.current_dir(folder.path()).stdin(Stdio::null());
            if round == 0 {
                // The files come into memory, and what the command needs is seen.
                *memory = peak_memory(command)?;
                continue;
            }
            let begun = Instant::now();
            let status = command.status()?;
            times.push(begun.elapsed());
            if !status.success() {
                bail!("{command:?}: {status}");
            }
        }
    }
    let arrays = f64::from(options.mebibytes);
    let mut numpys = None;
    println!("{} files of {} MiB", options.files, options.mebibytes);
    println!("| command | median, s | of NumPy's | memory, MiB | arrays |\n|---|---|---|---|---|");
    for ((name, _), (times, memory)) in contestants.iter().zip(&mut rows) {
        times.sort_unstable();
        let median = times.get(times.len() / 2).context("no round")?.as_secs_f64();
        let numpy = *numpys.get_or_insert(median);
        let memory = *memory as f64 / f64::from(1 << 20);
        println!(
            "| {name} | {median:.3} | {:.2} | {memory:.0} | {:.2} |",
            median / numpy,
            memory / arrays
        );
    }
    Ok(())
}

/// The most memory that a command and its children have at once, but for mapped files, in bytes.
fn peak_memory(command: &mut Command) -> anyhow::Result<u64> {
    let mut running = command.spawn()?;
    let mut peak = 0;
    while running.try_wait()?.is_none() {
        peak = peak.max(family(running.id()).into_iter().map(memory).sum());
        thread::sleep(Duration::from_millis(1));
    }
    match running.wait()?.success() {
        true => Ok(peak),
        false => bail!("{command:?} failed"),
    }
}

fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = children.flat_map(|task| {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<u32>>()
    });
    std::iter::once(pid).chain(children.flat_map(family)).collect()
}

fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("RssAnon:").or(line.strip_prefix("RssShmem:")));
    let kibibytes = lines.filter_map(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.sum::<u64>() << 10
}

const NUMPY: &str = "
import numpy as np, sys
total = np.load(sys.argv[1], mmap_mode='r').copy()
for path in sys.argv[2:]:
    total += np.load(path, mmap_mode='r')
np.save('theirs.npy', total)
";
