//! Everything that is tested.

use std::path::PathBuf;

use crate::{
    debian, look,
    mpi4py::{self, mpi4py},
    openfoam, project,
    shell::{cargo, run, succeeds},
    soak_kill::{self, soak_kill},
};

/// How much is tested.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also runs the tests over libfabric, which take about a quarter of an hour
    #[arg(long)]
    long: bool,
}

/// Runs the tests: the ordinary ones first, because most mistakes show there; then those that drive large programs of
/// others.
///
/// # Errors
/// If something that the tests need is missing, or at the first set of tests that fails.
pub(crate) fn test(options: &Options) -> anyhow::Result<()> {
    debian::provide()?;
    // Tests of spawned processes need the MPICH that comes with it.
    mpi4py::provide()?;
    ordinary()?;
    if !report().exists() {
        run(cargo(&["run", "--release", "--locked", "--", "demo"]))?;
    }
    look::look(&report())?;
    for hosts in [1, 2] {
        soak_kill(&soak_kill::Options::short(hosts))?;
    }
    object_stores()?;
    mpi4py(&mpi4py::Options::short())?;
    openfoam::test()?;
    if options.long {
        libfabric()?;
    }
    Ok(())
}

fn ordinary() -> anyhow::Result<()> {
    if !succeeds(cargo(&["nextest", "--version"])) {
        return run(cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]));
    }
    run(cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--locked",
        "--no-fail-fast",
    ]))?;
    run(cargo(&["test", "--workspace", "--locked", "--doc"]))
}

/// The tests over libfabric, which are behind a feature: what every provider has to do, over all that we know, and
/// what calls have to do over those of most use; its old `sockets` takes an hour. Its `shm` handles signals and wants
/// one process for each test, or at least one test at a time.
fn libfabric() -> anyhow::Result<()> {
    let tests: [(&str, &[&str]); 2] = [
        ("ropewalk-fabric", &["ofi"]),
        ("ropewalk-rpc", &["over_ofi_shm", "over_ofi_tcp"]),
    ];
    for (package, filters) in tests {
        let options = [
            "-p",
            package,
            "--features",
            "ofi",
            "--locked",
            "--no-fail-fast",
            "--",
        ];
        if succeeds(cargo(&["nextest", "--version"])) {
            run(cargo(&[&["nextest", "run"], &options[..], filters].concat()))?;
        } else {
            let one_at_a_time = ["--test-threads=1"];
            run(cargo(
                &[&["test"], &options[..], &one_at_a_time, filters].concat(),
            ))?;
        }
    }
    Ok(())
}

/// The tests with object stores, which are behind a feature.
fn object_stores() -> anyhow::Result<()> {
    for (package, test) in [
        ("ropewalk-checkpoint", "uploads"),
        ("ropewalk", "run_checkpoints"),
    ] {
        let words = [
            "-p",
            package,
            "--features",
            "object-store",
            "--locked",
            "--test",
            test,
        ];
        let verb: &[&str] = match succeeds(cargo(&["nextest", "--version"])) {
            true => &["nextest", "run"],
            false => &["test"],
        };
        run(cargo(&[verb, &words[..], &["--no-fail-fast"]].concat()))?;
    }
    Ok(())
}

/// Where the demo leaves its report.
pub(crate) fn report() -> PathBuf {
    project::root().join("target/demo/report.html")
}
