//! In which order the linker shall put the functions of the command.

mod tracer;

use std::{fmt::Write, fs, os::unix::fs::PermissionsExt, path::Path};

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
    // As users build it: names of functions depend on what is built together.
    run(cargo(&["build", "--release", "--locked"]))?;
    let command = fs::canonicalize(project::target()?.join("release/ropewalk"))?;
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
    let path = project::root().join("crates/ropewalk/link_order.txt");
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

/// Fewer functions than run when a job starts.
const FEW: usize = 200;
