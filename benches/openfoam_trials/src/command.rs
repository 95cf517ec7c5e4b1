//! Commands that have to succeed.

use std::{path::Path, process::Command};

use anyhow::{Context, ensure};

/// Says what runs, runs it, and fails if it does.
pub(crate) fn run(mut command: Command) -> anyhow::Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(name).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let line = words.join(" ");
    eprintln!("==> {line}");
    let status = command.status().with_context(|| format!("cannot start {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}
