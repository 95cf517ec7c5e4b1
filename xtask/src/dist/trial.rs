//! Each archive is installed in a folder of its own, used there, and removed again.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

use super::{Archives, PAGES};
use crate::{
    project,
    shell::{output, program, run},
};

/// Uses the tarball and the Debian package.
///
/// # Errors
/// Names what fails in an installed archive, and the files that its removal leaves.
pub(super) fn use_all(archives: &Archives) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut unpack = program("tar", &["--extract", "--strip-components=1", "--file"]);
    unpack
        .arg(&archives.tarball)
        .arg("--directory")
        .arg(folder.path());
    run(unpack)?;
    use_prefix(folder.path()).context("the tarball")?;
    match &archives.debian {
        Some(package) => use_debian(package).context("the Debian package"),
        None => Ok(()),
    }
}

/// Sees to it that the command of a release is no larger than is promised.
///
/// # Errors
/// If it is.
pub(super) fn is_small(archives: &Archives) -> anyhow::Result<()> {
    let path = archives.tree.join("bin/ropewalk");
    let metadata = fs::metadata(&path).with_context(|| format!("cannot find {}", path.display()))?;
    let bytes = metadata.len();
    ensure!(
        bytes < COMMAND_BYTES_MAX,
        "{} has {bytes} bytes, and {COMMAND_BYTES_MAX} at most are promised",
        path.display()
    );
    Ok(())
}

/// The size of the command that users have to fetch.
const COMMAND_BYTES_MAX: u64 = 12_000_000;

/// Installs the package in a system that has no other, uses it and removes it.
fn use_debian(package: &Path) -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    let database = root.path().join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(folder))?;
    }
    for file in ["status", "available"] {
        fs::write(database.join(file), "")?;
    }
    let mut install = dpkg(root.path());
    // A root without a C library; ours is the one of the system around it.
    install
        .args(["--force-depends", "--install"])
        .arg(package)
        .env("DEBIAN_FRONTEND", "noninteractive");
    run(install)?;
    let prefix = root.path().join("usr");
    use_prefix(&prefix)?;
    let mut verify = dpkg(root.path());
    verify.args(["--verify", "ropewalk"]);
    let changed = output(verify)?;
    ensure!(changed.is_empty(), "files have changed: {changed}");

    let mut remove = dpkg(root.path());
    remove.args(["--purge", "ropewalk"]);
    run(remove)?;
    let left: Vec<_> = files(root.path())?
        .into_iter()
        .filter(|path| !path.starts_with(&database) && !database.starts_with(path))
        .filter(|path| !path.ends_with("var/log/dpkg.log") && !root.path().join("var/log").starts_with(path))
        .collect();
    ensure!(left.is_empty(), "the removal leaves {left:?}");
    let mut listed = dpkg(root.path());
    listed.args(["--get-selections"]);
    let listed = output(listed)?;
    ensure!(
        listed.is_empty(),
        "the removal leaves {listed:?} in the list of packages"
    );
    Ok(())
}

/// Debian's installer for a root of its own, which takes all files also where the system around it leaves manual pages
/// out.
fn dpkg(root: &Path) -> Command {
    let mut command = match rustix::process::geteuid().is_root() {
        true => program("dpkg", &[]),
        false => program("fakeroot", &["dpkg", "--force-not-root"]),
    };
    command
        .arg(format!("--root={}", root.display()))
        .args(["--force-bad-path", "--path-include=/usr/share/*"]);
    command
}

/// Every file, link and folder below a folder.
fn files(folder: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?);
        }
        found.insert(entry.path());
    }
    Ok(found)
}

/// Starts a job, reads a manual page, completes a word, and compiles a program with the library of checkpoints.
fn use_prefix(prefix: &Path) -> anyhow::Result<()> {
    let command = prefix.join("bin/ropewalk").display().to_string();
    let host = output(program("hostname", &[]))?;
    let said = output(program(&command, &["run", "-n", "2", "hostname"]))?;
    ensure!(
        said == format!("{host}{host}"),
        "two ranks say their host is {said:?}"
    );

    let page = prefix.join(PAGES).join("ropewalk-run.1.gz");
    let mut man = program("man", &["--local-file"]);
    man.arg(&page).env("MANWIDTH", "80");
    let page = output(man).with_context(|| format!("cannot read {}", page.display()))?;
    ensure!(
        page.contains("--on-failure"),
        "the manual page of run lacks an option: {page}"
    );

    let mut bash = program("bash", &["-c", COMPLETE, "bash"]);
    bash.arg(prefix.join("share/bash-completion/completions/ropewalk"));
    let completed = output(bash)?;
    ensure!(
        completed == "--on-failure\n",
        "bash completes --on-f to {completed:?}"
    );
    use_library(prefix)
}

/// Prints the words that bash offers for the beginning of an option of `ropewalk run`.
const COMPLETE: &str = r#"set -eu
. "$1"
complete -p ropewalk > /dev/null
COMP_WORDS=(ropewalk run --on-f) COMP_CWORD=2
_ropewalk ropewalk --on-f run
printf '%s\n' "${COMPREPLY[@]}""#;

/// Compiles the example against the installed header and library, and runs it.
fn use_library(prefix: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let heat = folder.path().join("heat");
    let library = prefix.join("lib");
    let mut compile = program("cc", &["-D_GNU_SOURCE", "-o"]);
    compile
        .arg(&heat)
        .arg(project::root().join("crates/checkpoint-c/examples/heat.c"))
        .arg(format!("-I{}", prefix.join("include").display()))
        .arg(format!("-L{}", library.display()))
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .args(["-lrw_checkpoint", "-lm"]);
    run(compile)?;
    let mut heat = program(&heat.display().to_string(), &[]);
    heat.arg(folder.path().join("saves")).arg("20");
    let said = output(heat)?;
    ensure!(!said.trim().is_empty(), "the program that saves prints no sum");
    Ok(())
}
