//! The command beside Hydra, MPICH and Slurm's PMI library, measured in turns on this machine.

use std::path::PathBuf;

use crate::{
    debian, project,
    shell::{cargo, program, run},
};

/// Words for `ropewalk-rivals`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A comparison and its options, as in `launch --repetitions 15`; `help` lists them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs a comparison.
///
/// # Errors
/// If something cannot be built or run.
pub(crate) fn bench_rivals(options: &Options) -> anyhow::Result<()> {
    let rivals = build()?.join("ropewalk-rivals");
    let words: Vec<_> = options.words.iter().map(String::as_str).collect();
    run(program(&rivals.to_string_lossy(), &words))
}

/// Builds the command as users have it, and beside it the program that measures it, which is no part of it; the folder
/// of both.
///
/// # Errors
/// If something cannot be built.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    debian::provide()?;
    run(cargo(&["build", "--release", "--locked"]))?;
    // Alone, so that what it needs of a crate is not built into the command too.
    run(cargo(&[
        "build",
        "--release",
        "--locked",
        "-p",
        "ropewalk-rivals",
    ]))?;
    Ok(project::target()?.join("release"))
}
