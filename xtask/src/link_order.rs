//! In which order the linker shall put the functions of the command.

mod tracer;

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use crate::{
    project,
    shell::{cargo, output, program, run},
};
use tracer::Tracer;

/// Starts jobs, and writes the functions that run then in `crates/ropewalk/link_order.txt`, in the order of their first calls.
///
/// # Errors
/// If the command cannot be built or traced, or next to nothing runs.
pub(crate) fn link_order() -> anyhow::Result<()> {
    let command = build()?;
    let name = command.to_str().context("the target folder is no text")?;
    let symbols = output(program("nm", &[name]))?;
    let folder = tempfile::tempdir()?;
    let rsh = rsh(folder.path())?;
    let mut tracer = Tracer::new(&command, &symbols)?;
    // What happens at every start comes first, then what does while a job runs: memory is given back, neighbours are heard.
    for job in [
        "--detect 60 -n 2 true".to_owned(),
        format!("--detect 60 -hosts alpha,beta --launcher-exec {rsh} -n 2 -l true"),
        "--detect 60 -n 200 sleep 0.5".to_owned(),
        "--detect 2 -n 2 sleep 4".to_owned(),
    ] {
        tracer.run(&format!("{name} run {job}"))?;
    }
    let order = tracer.order();
    ensure!(order.len() > FEW, "only {} functions were found", order.len());
    let mut text = String::new();
    for symbol in &order {
        writeln!(text, "{symbol}")?;
    }
    fs::write(list(), text)?;
    println!("{} functions are in {}", order.len(), list().display());
    Ok(())
}

/// Looks whether the executable still has the functions that the list names, and needs no library of functions.
///
/// # Errors
/// If many are gone, so that the list is to be made anew, or the library is needed.
pub(crate) fn check() -> anyhow::Result<()> {
    let command = build()?;
    let name = command.to_str().context("the target folder is no text")?;
    let needed = output(program("readelf", &["--dynamic", name]))?;
    ensure!(
        !needed.contains("[libm.so"),
        "the command needs the system's library of functions: complete crates/ropewalk/src/elementary_functions.rs"
    );
    let symbols = output(program("nm", &[name]))?;
    let there: BTreeSet<_> = symbols
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    let list = fs::read_to_string(list())?;
    let (found, gone): (Vec<_>, Vec<_>) = list.lines().partition(|name| there.contains(name));
    println!(
        "{} of the functions in link_order.txt are there, {} are not",
        found.len(),
        gone.len()
    );
    ensure!(
        found.len() > FEW && gone.len() * GONE_SHARE <= list.lines().count(),
        "too many functions are gone from link_order.txt: run `cargo xtask link-order` and commit it"
    );
    Ok(())
}

/// The command as users build it: names of functions depend on what is built together.
fn build() -> anyhow::Result<PathBuf> {
    run(cargo(&["build", "--release", "--locked"]))?;
    Ok(fs::canonicalize(project::target()?.join("release/ropewalk"))?)
}

fn list() -> PathBuf {
    project::root().join("crates/ropewalk/link_order.txt")
}

/// A command like rsh that starts what it is told on this host.
fn rsh(folder: &Path) -> anyhow::Result<String> {
    let path = folder.join("rsh");
    fs::write(&path, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path.display().to_string())
}

/// Fewer functions than run when a job starts.
const FEW: usize = 200;

/// One of so many may be gone: 26 of 910 made the memory of launcher and agent larger by a quarter.
const GONE_SHARE: usize = 100;
