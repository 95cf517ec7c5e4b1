//! Everything that is tested.

use std::path::PathBuf;

use crate::{
    debian, look, project,
    shell::{cargo, run, succeeds},
    soak_kill::{Options, soak_kill},
};

/// Runs every test: the slow ones over real processes first, the ordinary ones last, so that the runner's summary
/// is what one reads at the end.
///
/// # Errors
/// If something that the tests need is missing, or at the first test that fails.
pub(crate) fn test() -> anyhow::Result<()> {
    debian::provide()?;
    if !report().exists() {
        run(cargo(&["run", "--release", "--locked", "--", "demo"]))?;
    }
    look::look(&report())?;
    soak_kill(&Options::short())?;
    if succeeds(cargo(&["nextest", "--version"])) {
        run(cargo(&["test", "--workspace", "--locked", "--doc"]))?;
        run(cargo(&[
            "nextest",
            "run",
            "--workspace",
            "--locked",
            "--no-fail-fast",
        ]))
    } else {
        run(cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]))
    }
}

/// Where the demo leaves its report.
pub(crate) fn report() -> PathBuf {
    project::root().join("target/demo/report.html")
}
