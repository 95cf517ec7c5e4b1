//! The demo's application, which is an executable of its own: the one that starts jobs carries no seismic code.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use ropewalk_reduce::Receipt;
use serde::Deserialize;

/// The executable beside this one that models, migrates and draws.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) path: PathBuf,
}

/// The result of a migration as its process tells it, in a line of JSON.
#[derive(Debug, Deserialize)]
pub(super) struct Summary {
    pub(super) digest: String,
    /// `None` if nothing was reduced.
    pub(super) receipt: Option<Receipt>,
}

impl Application {
    /// Finds the executable. If cargo runs this command, it builds the executable first: `cargo run` builds
    /// the one that it runs and no other.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn find() -> anyhow::Result<Self> {
        let path = env::current_exe()
            .context("cannot find my own executable")?
            .with_file_name(NAME);
        if let Some(cargo) = cargo() {
            build(&cargo, &path)?;
        }
        ensure!(
            path.is_file(),
            "the demo needs {}, which cargo build puts there",
            path.display()
        );
        Ok(Self { path })
    }

    /// Models a survey, unless it is in `cache` already; its folder.
    pub(super) fn model(&self, seed: u64, size: &str, cache: &Path) -> anyhow::Result<PathBuf> {
        let mut command = Command::new(&self.path);
        command.args(["model", "--seed", &seed.to_string(), "--size", size]);
        let mut said = answer(command.arg("--cache").arg(cache))?;
        ensure!(said.pop() == Some(b'\n'), "{NAME} names no survey");
        Ok(OsString::from_vec(said).into())
    }

    /// The words with which it is a rank that migrates a part of the survey.
    pub(super) fn worker_words(survey: &Path, out: &Path) -> Vec<OsString> {
        let words: [&OsStr; 5] = [
            "worker".as_ref(),
            "--survey".as_ref(),
            survey.as_ref(),
            "--out".as_ref(),
            out.as_ref(),
        ];
        words.map(OsStr::to_owned).into()
    }

    /// Migrates a survey in one process, as so many workers do.
    pub(super) fn migrate(&self, survey: &Path, out: &Path, parts: u32) -> anyhow::Result<Summary> {
        let mut command = Command::new(&self.path);
        command.args(["serial", "--parts", &parts.to_string(), "--survey"]);
        Summary::read(&answer(command.arg(survey).arg("--out").arg(out))?)
    }
}

impl Summary {
    /// Reads the output of whoever has a result.
    pub(super) fn read(said: &[u8]) -> anyhow::Result<Self> {
        serde_json::from_slice(said).context("the application tells no result")
    }
}

/// The cargo that runs this command, if one does.
pub(super) fn cargo() -> Option<OsString> {
    let runs_this = env::var_os("CARGO_PKG_NAME").is_some_and(|name| name == "ropewalk-cli");
    env::var_os("CARGO").filter(|_| runs_this)
}

fn build(cargo: &OsStr, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().context("this executable is in no folder")?;
    let profile = match folder.file_name() {
        Some(name) if name != "debug" => name,
        _ => "dev".as_ref(),
    };
    let mut command = Command::new(cargo);
    command.args(["build", "--bin", NAME, "--profile"]).arg(profile);
    if let Some(target) = folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    // Set for this command by the cargo that started it; to a nested cargo they would say the wrong thing.
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(variable);
    }
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo does not build {NAME}: {status}");
    Ok(())
}

/// The output of a command that succeeds; progress and errors go to the standard error.
fn answer(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{NAME}: {}", output.status);
    Ok(output.stdout)
}

const NAME: &str = "ropewalk-demo-worker";
