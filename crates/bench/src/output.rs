//! The results of a command, on the standard output.

use std::io::{Write, stdout};

use anyhow::Context;

/// Prints a text and the end of its last line, at once.
///
/// # Errors
/// If nobody takes it, as where the disk is full or the reader has gone.
pub fn print(text: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .context("cannot write to the standard output")
}
