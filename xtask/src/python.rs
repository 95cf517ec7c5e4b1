//! The package for Python: its wheel, and its tests in a fresh environment.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};

use crate::{
    project,
    shell::{finish, output, program, run, succeeds},
};

/// The versions that were seen to work; others may check types in other ways.
const REQUIREMENTS: [&str; 3] = ["ml-dtypes==0.6.0", "mypy==2.4.1", "numpy==2.4.6"];
const SEGYIO: &str = "segyio==1.9.14";
const KUBERNETES: &str = "kubernetes-validate==1.37.0";
/// The first version in which a Job may end with its launcher (`successPolicy`), and the newest with schemas.
const KUBERNETES_VERSIONS: [&str; 2] = ["1.31", "1.37"];
const TIME_MAX: Duration = Duration::from_secs(400);
/// Debian's has the module that reads the description of the package, and the one that makes environments.
const PYTHON: &str = "/usr/bin/python3";

/// Makes the wheel that is handed on, below `target/wheels`, and says where it is.
///
/// # Errors
/// If something cannot be built.
pub(crate) fn wheel() -> anyhow::Result<()> {
    let wheel = build(&project::target()?.join("wheels"), None)?;
    println!("{}", wheel.display());
    Ok(())
}

/// Installs the package in a fresh environment, checks its types, and runs its tests, its examples and the demo there.
/// It contains what a build of the tests has made, so that nothing is compiled twice. Installs it from its sources too,
/// and imports SEG-Y files.
///
/// # Errors
/// If something cannot be built or had from PyPI, or a test fails.
pub(crate) fn test() -> anyhow::Result<()> {
    let built = project::build()?;
    environment()?;
    let folder = project::target()?.join("python");
    let python = text(&installed()?.join("python"));

    let bindings = project::root().join("bindings/python");
    let there =
        |files: &[&str]| -> Vec<String> { files.iter().map(|file| text(&bindings.join(file))).collect() };
    let settings = text(&bindings.join("pyproject.toml"));
    let users = there(&[
        "examples/hello.py",
        "examples/migrate.py",
        "examples/monte_carlo.py",
        "examples/plate.py",
        "examples/plate_ranks.py",
        "examples/rod_ranks.py",
        "examples/train.py",
        "examples/train_torch.py",
        "tests/package.py",
        "tests/buffers.py",
    ]);
    let own = ["-m", "mypy", "--config-file", &settings, "--package", "ropewalk"];
    let users: Vec<_> = own[..4]
        .iter()
        .copied()
        .chain(users.iter().map(String::as_str))
        .collect();
    let stub = ["-m", "mypy.stubtest", "ropewalk._native"];
    let tests = there(&["tests/package.py"]);
    for words in [&own[..], &users, &stub, &[tests[0].as_str()]] {
        let mut command = program(&python, words);
        // From a folder where there is no package of the repository.
        command.current_dir(&folder).env_remove("PYTHONPATH");
        finish(command, TIME_MAX)?;
    }
    demo(&installed()?)?;
    segyio(&python, &folder)?;
    kubernetes(&python)?;
    install_from_sources(&built)
}

/// Installs the package with pip from a copy of the sources that git knows, into a fresh environment. It contains what
/// a build of the tests has made: for sources in another folder cargo would compile everything again.
fn install_from_sources(built: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("sources");
    let listed = output(program(
        "git",
        &["ls-files", "--cached", "--others", "--exclude-standard"],
    ))?;
    for file in listed.lines() {
        let (from, to) = (project::root().join(file), copy.join(file));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        if from.is_file() {
            fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
        }
    }
    let environment = folder.path().join("venv");
    run(program(PYTHON, &["-m", "venv", &text(&environment)]))?;
    let python = text(&environment.join("bin/python"));
    let sources = text(&copy.join("bindings/python"));
    let mut install = program(
        &python,
        &["-m", "pip", "--quiet", "install", "--no-input", &sources],
    );
    install.env("ROPEWALK_ARTIFACTS", built);
    finish(install, TIME_MAX)?;
    let script = "import ropewalk, subprocess; subprocess.run([ropewalk.command(), '--version'], check=True)";
    let mut used = program(&python, &["-c", script]);
    used.current_dir(&folder).env_remove("PYTHONPATH");
    finish(used, TIME_MAX)
}

/// Runs the demo of an environment, on a small survey.
fn demo(programs: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let words = ["demo", "--size", "small", "--out", "demo"];
    let mut command = program(&text(&programs.join("ropewalk")), &words);
    command.current_dir(&folder);
    finish(command, TIME_MAX)?;
    let report = folder.path().join("demo/report.html");
    ensure!(report.is_file(), "there is no {}", report.display());
    Ok(())
}

/// Imports files that segyio has written. PyPI has no wheel of it for some machines; there the test is skipped.
fn segyio(python: &str, folder: &Path) -> anyhow::Result<()> {
    if !is_installed(python, SEGYIO) {
        eprintln!("skipped: {SEGYIO} cannot be installed, by which SEG-Y files are written");
        return Ok(());
    }
    let files = folder.join("segyio");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir(&files)?;
    let script = text(&project::root().join("examples/psdm/tests/segyio_files.py"));
    let worker = text(&project::target()?.join("debug/ropewalk-demo-worker"));
    finish(program(python, &[&script, &worker, &text(&files)]), TIME_MAX)
}

/// Compares the recipe for Kubernetes with the schemas of its versions. Where the validator cannot be had the test is
/// skipped.
fn kubernetes(python: &str) -> anyhow::Result<()> {
    if !is_installed(python, KUBERNETES) {
        eprintln!("skipped: {KUBERNETES} cannot be installed, which validates the recipe for Kubernetes");
        return Ok(());
    }
    let recipe = text(&project::root().join("docs/recipes/kubernetes/indexed-job.yaml"));
    let validate = text(&installed()?.join("kubernetes-validate"));
    for version in KUBERNETES_VERSIONS {
        let words = ["--strict", "--kubernetes-version", version, &recipe];
        finish(program(&validate, &words), TIME_MAX)?;
    }
    Ok(())
}

/// Installs a package that is compiled already, and says if that is done.
fn is_installed(python: &str, package: &str) -> bool {
    let install = [
        "-m",
        "pip",
        "--quiet",
        "install",
        "--no-input",
        "--only-binary",
        ":all:",
        package,
    ];
    succeeds(program(python, &install))
}

/// Makes a fresh environment with the package, of what is built, and with all that its tests need.
///
/// # Errors
/// If the wheel cannot be made, or something cannot be had from PyPI.
pub(crate) fn environment() -> anyhow::Result<()> {
    let target = project::target()?;
    let folder = target.join("python");
    let wheel = text(&build(&folder, Some(&target.join("debug")))?);
    let environment = text(&folder.join("venv"));
    run(program(PYTHON, &["-m", "venv", "--clear", &environment]))?;
    let mut install = vec!["-m", "pip", "--quiet", "install", "--no-input"];
    install.extend(REQUIREMENTS.into_iter().chain([wheel.as_str()]));
    run(program(&text(&installed()?.join("python")), &install))
}

/// The folder with the programs of that environment.
///
/// # Errors
/// If cargo does not say where it builds.
pub(crate) fn installed() -> anyhow::Result<PathBuf> {
    Ok(project::target()?.join("python/venv/bin"))
}

/// Makes a wheel in a folder, of what is built there or else of what cargo builds now.
fn build(folder: &Path, built: Option<&Path>) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let script = "import build_backend, sys; print('wheel', build_backend.build_wheel(sys.argv[1]))";
    let mut command = program(PYTHON, &["-B", "-c", script, &text(folder)]);
    command.current_dir(project::root().join("bindings/python"));
    if let Some(built) = built {
        command.env("ROPEWALK_ARTIFACTS", built);
    }
    let printed = output(command)?;
    let name = printed.lines().find_map(|line| line.strip_prefix("wheel "));
    Ok(folder.join(name.context("the build names no wheel")?))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
