//! The page with the options of `ropewalk run`, which is written from its help.

use std::{fs, path::Path, process::Command};

use anyhow::bail;

use super::PAGES;
use crate::{project, shell::output};

/// Writes the page, and fails if it was another one: whoever changed the options commits it with them.
///
/// # Errors
/// If the page was out of date, or cannot be written.
pub(super) fn write(ropewalk: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(ropewalk);
    command.args(["run", "--help"]);
    let page = page(&output(command)?);
    let path = project::root().join(PAGES).join("reference/options.md");
    if fs::read_to_string(&path).is_ok_and(|found| found == page) {
        return Ok(());
    }
    fs::write(&path, page)?;
    bail!(
        "{} was out of date and is written anew: commit it",
        path.display()
    )
}

fn page(help: &str) -> String {
    let lines = [
        "# Options of `ropewalk run`",
        "",
        "`cargo xtask book` writes this page from `ropewalk run --help`. The manual page `ropewalk-run(1)`",
        "and the completions of shells come from the same table. `ropewalk COMMAND --help` shows the options of the",
        "other commands.",
        "",
        "```text",
        help.trim_end(),
        "```",
        "",
    ];
    lines.join("\n")
}
