//! Running other programs.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::project;

/// The cargo that runs this program, in the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = program(
        &std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()),
        arguments,
    );
    // Set for this program by the cargo that started it; to a nested cargo they would say the wrong thing.
    for variable in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
        command.env_remove(variable);
    }
    command
}

/// A program on the path, in the root of the repository.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(project::root());
    command
}

/// Says what runs, runs it, and fails if it does.
///
/// # Errors
/// If the program cannot be started or does not succeed.
pub(crate) fn run(mut command: Command) -> anyhow::Result<()> {
    let line = line(&command);
    eprintln!("==> {line}");
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs a program that must be done after `time_max`, and fails if it fails or is not; it is ended then.
///
/// # Errors
/// If the program cannot be started, does not succeed, or takes too long.
pub(crate) fn finish(mut command: Command, time_max: Duration) -> anyhow::Result<()> {
    let line = line(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start {line}"))?;
    let end = Instant::now() + time_max;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            bail!("{line}: not done after {} s", time_max.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs a program, and returns what it prints on its standard output.
///
/// # Errors
/// If the program cannot be started or does not succeed.
pub(crate) fn output(mut command: Command) -> anyhow::Result<String> {
    let line = line(&command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{line} printed what is no text"))
}

/// Returns true if a program can be started and then succeeds; what it prints is dropped.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or_default()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
