//! The function object as users build and use it, in a home of their own outside of the repository.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, ensure};

use super::{
    build::set_variables,
    cases::make::copy_tutorial,
    cavity::tool,
    solver::{Mode, Solver, copy},
};

/// Builds it for Debian's OpenFOAM, and for one with sources of its own, and runs a tutorial with each.
pub(super) fn test(executables: &Path, cache: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let fresh = Solver {
        application: "icoFoam",
        case: folder.path().join("fresh"),
        mode: Mode::Serial,
    };
    copy_tutorial("incompressible/icoFoam/cavity/cavity", &fresh.case)?;
    tool(&fresh.case, "blockMesh", &[])?;
    let undisturbed = case(&fresh, folder.path(), "undisturbed")?;
    undisturbed.finish(None)?;
    let expected = undisturbed.fields(LAST)?;
    let tried = |name: &str, script: &str, place: &str| -> anyhow::Result<()> {
        let home = tempfile::tempdir()?;
        let solver = case(&fresh, home.path(), "case")?;
        let said = used(script, home.path(), &solver.case, executables, cache)?;
        let library = home.path().join(place).join(ropewalk_openfoam::LIBRARY);
        ensure!(library.exists(), "{name}: there is no {}", library.display());
        ensure!(said.contains(LOADED), "{name}: the solver does not save: {said}");
        ensure!(
            solver.fields(LAST)? == expected,
            "{name}: the result differs from that of the undisturbed run: {said}"
        );
        println!("{name}: built in a home, and a tutorial comes to its result with it");
        Ok(())
    };
    tried("Debian's OpenFOAM", BUILD_AND_RUN, DEBIANS_PLACE)?;
    let sourced = format!("source {}/etc/bashrc\n{BUILD_AND_RUN}", sources(cache)?);
    tried("an OpenFOAM with sources", &sourced, OWN_PLACE)
}

/// A copy of a case.
fn case(fresh: &Solver, folder: &Path, name: &str) -> anyhow::Result<Solver> {
    let solver = Solver {
        case: folder.join(name),
        ..fresh.clone()
    };
    copy(&fresh.case, &solver.case)?;
    Ok(solver)
}

/// Runs a script in a case, as a user with this home; returns all output.
fn used(script: &str, home: &Path, case: &Path, executables: &Path, cache: &Path) -> anyhow::Result<String> {
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .env("ROPEWALK", executables.join("ropewalk"))
        .env("HOME", home)
        .env("USER", "somebody")
        .current_dir(case);
    for variable in ["FOAM_USER_LIBBIN", "WM_PROJECT_DIR", "XDG_DATA_HOME"] {
        command.env_remove(variable);
    }
    set_variables(&mut command, cache);
    let output = command.output().context("cannot start bash")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(output.status.success(), "{script}: {}: {said}", output.status);
    Ok(said)
}

/// The sources that the build for Debian's OpenFOAM has fetched. They are an installation but for the programs, which
/// are Debian's.
fn sources(cache: &Path) -> anyhow::Result<String> {
    let cache = cache.join("ropewalk");
    let folders = fs::read_dir(&cache).with_context(|| format!("cannot read {}", cache.display()))?;
    let mut names = folders.filter_map(|entry| entry.ok()?.path().into_os_string().into_string().ok());
    names
        .find(|name| name.contains("openfoam-") && !name.ends_with(".tmp"))
        .context("no sources of OpenFOAM were fetched")
}

/// As in the book.
const BUILD_AND_RUN: &str = "\"$ROPEWALK\" openfoam build && \"$ROPEWALK\" openfoam run icoFoam";

/// The folders of a home in which the library is built.
const DEBIANS_PLACE: &str = ".local/share/ropewalk";
const OWN_PLACE: &str = "OpenFOAM/somebody-v1912/platforms/linux64GccDPInt32Opt/lib";

/// The last time of the tutorial.
const LAST: &str = "0.5";

/// The function object is there.
const LOADED: &str = "ropewalk: saves to ";
