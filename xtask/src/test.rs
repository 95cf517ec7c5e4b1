//! The tests, in three tiers.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    book,
    chaos::{self, chaos},
    debian, dist,
    flavours::{self, flavours},
    look,
    mpi4py::{self, mpi4py},
    openfoam,
    papers::{self, papers},
    project, python,
    shell::{cargo, run, succeeds},
    soak_files::{self, soak_files},
};

/// Which tiers run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Adds the slow tests: the demo's report in a browser, a short chaos, few points of the papers' figures,
    /// the package for Python, the archives, the commands in the book, Debian's MPI libraries, mpi4py's suite,
    /// OpenFOAM, a choice of libfabric's matrix
    #[arg(long)]
    ci: bool,
    /// Adds the rest of libfabric's matrix, which takes about a quarter of an hour
    #[arg(long)]
    long: bool,
}

/// Runs the tests, ordinary ones first: most mistakes show there. Stops at the first step that fails, and
/// prints the time of each step.
///
/// # Errors
/// If a package that the tests need cannot be installed, or a test fails.
pub(crate) fn test(options: &Options) -> anyhow::Result<()> {
    let mut steps = Steps::default();
    let result = steps.all(options);
    steps.print();
    result
}

/// The steps so far, and their times.
#[derive(Default)]
struct Steps(Vec<(&'static str, Duration)>);

impl Steps {
    fn all(&mut self, options: &Options) -> anyhow::Result<()> {
        self.step("packages", || {
            debian::provide()?;
            // Tests of spawned processes need the MPICH that comes with it.
            mpi4py::provide()
        })?;
        self.step("build", || tests(&WITHOUT_LIBFABRIC, true))?;
        self.step("ordinary tests", || tests(&WITHOUT_LIBFABRIC, false))?;
        self.step("examples in documentation", || {
            run(cargo(&[
                "test",
                "--workspace",
                "--all-features",
                "--locked",
                "--doc",
            ]))
        })?;
        if options.ci || options.long {
            self.slow()?;
        }
        match options.long {
            true => self.step("libfabric, all", || tests(&LIBFABRIC, false)),
            false => Ok(()),
        }
    }

    fn slow(&mut self) -> anyhow::Result<()> {
        self.step("libfabric, a choice", || tests(&LIBFABRIC_CHOICE, false))?;
        self.step("demo", || {
            if !report().exists() {
                run(cargo(&["run", "--release", "--locked", "--", "demo"]))?;
            }
            look::look(&report()).map(drop)
        })?;
        self.step("chaos", || chaos(&chaos::Options::short()))?;
        self.step("soak of files", || soak_files(&soak_files::Options::short()))?;
        self.step("Python", python::test)?;
        // In the environment that the step before has made.
        self.step("book", book::blocks)?;
        self.step("archives", dist::test)?;
        self.step("papers, few points", || papers(&papers::Options::quick()))?;
        self.step("MPI libraries", || flavours(&flavours::Options::short()))?;
        self.step("mpi4py", || mpi4py(&mpi4py::Options::short()))?;
        self.step("OpenFOAM", openfoam::test)
    }

    fn step(&mut self, name: &'static str, step: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let began = Instant::now();
        let result = step();
        self.0.push((name, began.elapsed()));
        result
    }

    fn print(&self) {
        let total: Duration = self.0.iter().map(|(_, took)| *took).sum();
        for (name, took) in self.0.iter().copied().chain([("total", total)]) {
            eprintln!("{:>5} s  {name}", took.as_secs());
        }
    }
}

/// The tests that a step runs: a filter of nextest, and the words by which `cargo test` comes near it. Tests
/// over libfabric have `ofi` in their names.
struct Choice {
    nextest: &'static str,
    cargo: &'static [&'static str],
}

const WITHOUT_LIBFABRIC: Choice = Choice {
    nextest: "not test(ofi)",
    cargo: &["--skip", "ofi"],
};
const LIBFABRIC_CHOICE: Choice = Choice {
    nextest: "package(ropewalk-fabric-ofi) and test(ofi_tcp)",
    cargo: &["ofi_tcp"],
};
const LIBFABRIC: Choice = Choice {
    nextest: "package(ropewalk-fabric-ofi) and test(ofi) or package(ropewalk-rpc) and test(/over_ofi_(shm|tcp)/)",
    cargo: &["ofi", "--skip", "ofi_sockets"],
};

/// All features at once, so that the workspace is compiled once. Libfabric's provider `shm` wants a process for each
/// test, or one test at a time.
fn tests(choice: &Choice, only_build: bool) -> anyhow::Result<()> {
    let common = ["--workspace", "--all-features", "--locked"];
    let how = if only_build { "--no-run" } else { "--no-fail-fast" };
    let words = match succeeds(cargo(&["nextest", "--version"])) {
        true => [&["nextest", "run"], &common[..], &[how, "-E", choice.nextest]].concat(),
        false => [
            &["test", "--tests"],
            &common[..],
            &[how, "--", "--test-threads=1"],
            choice.cargo,
        ]
        .concat(),
    };
    run(cargo(&words))
}

/// Where the demo leaves its report.
pub(crate) fn report() -> PathBuf {
    project::root().join("target/demo/report.html")
}
