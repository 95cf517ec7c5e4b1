//! In which order the linker shall put the functions of the command.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Context, ensure};

use crate::{
    project,
    shell::{cargo, output, program, run},
};

/// Samples many starts of jobs with perf, and writes the functions that were found in `crates/ropewalk/link_order.txt`, those that
/// were found most often first. What is found is also kept from before, as far as the executable still has it: what takes
/// no time is found by chance.
///
/// # Errors
/// If the command cannot be built, perf is missing, or it finds next to nothing.
pub(crate) fn link_order() -> anyhow::Result<()> {
    run(cargo(&["build", "--release", "--locked", "-p", "ropewalk"]))?;
    let command = project::target()?.join("release/ropewalk");
    let command = command.to_str().context("the target folder is no text")?;
    let folder = tempfile::tempdir()?;
    let samples = folder.path().join("perf.data");
    let samples = samples.to_str().context("the temporary folder is no text")?;
    let rsh = rsh(folder.path())?;
    let starts = format!(
        "for i in $(seq {STARTS}); do {command} run -n 2 true; {command} run -hosts localhost,127.0.0.2 --launcher-exec {rsh} \
         -n 2 -l true; done"
    );
    run(program(
        "perf",
        &[
            "record",
            "--quiet",
            "-F",
            FREQUENCY,
            "-e",
            "cpu-clock:u",
            "-o",
            samples,
            "--",
            "sh",
            "-c",
            &starts,
        ],
    ))?;
    let found = output(program(
        "perf",
        &["script", "-i", samples, "--no-demangle", "-F", "ip,sym,dso"],
    ))?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in found
        .lines()
        .filter(|line| line.contains(&format!("({command})")))
    {
        if let [_, symbol, _] = line.split_whitespace().collect::<Vec<_>>()[..] {
            *counts.entry(symbol).or_default() += 1;
        }
    }
    let symbols = output(program("nm", &[command]))?;
    let there: BTreeSet<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let path = project::root().join("crates/ropewalk/link_order.txt");
    let before = fs::read_to_string(&path).unwrap_or_default();
    for symbol in before.lines() {
        counts.entry(symbol).or_default();
    }
    counts.retain(|symbol, _| there.contains(symbol));
    ensure!(counts.len() > FEW, "only {} functions were found", counts.len());
    let mut order: Vec<(&str, usize)> = counts.into_iter().collect();
    order.sort_by_key(|&(symbol, count)| (std::cmp::Reverse(count), symbol));
    let mut text = String::new();
    for (symbol, _) in &order {
        writeln!(text, "{symbol}")?;
    }
    fs::write(&path, text)?;
    println!("{} functions are in {}", order.len(), path.display());
    Ok(())
}

/// A command like rsh that starts what it is told on this host.
fn rsh(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("rsh");
    fs::write(&path, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path.display().to_string())
}

/// How often a job is started, on one host and on two.
const STARTS: usize = 500;
/// Samples per second.
const FREQUENCY: &str = "20000";
/// Fewer functions than run when a job starts.
const FEW: usize = 200;
