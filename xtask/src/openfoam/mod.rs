//! OpenFOAM under our store: builds the function object and shows what it is good for.

mod build;
mod cases;
mod cavity;
mod solver;
mod tests;
mod trials;

use std::path::PathBuf;

use anyhow::Context;

pub(crate) use build::build;

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The function object, if it is there already
    #[arg(long, global = true)]
    library: Option<PathBuf>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Only builds the function object
    Build,
    /// Runs the paper's three cases with failures, and compares what they take with what was expected
    Cases(cases::Options),
    /// Kills many runs at random moments, with the store and without, and compares their results
    Trials(trials::Options),
}

/// Builds the function object and, if nothing else is asked for, tests it.
///
/// # Errors
/// If it cannot be built, or at the first test that fails.
pub(crate) fn openfoam(options: &Options) -> anyhow::Result<()> {
    let library = match &options.library {
        Some(library) => library.canonicalize().context("there is no such library")?,
        None => build()?,
    };
    match &options.what {
        None => tests::test(&library),
        Some(What::Build) => {
            println!("{}", library.display());
            Ok(())
        }
        Some(What::Cases(options)) => cases::cases(&library, options),
        Some(What::Trials(options)) => trials::trials(&library, options),
    }
}

/// The short tests.
///
/// # Errors
/// At the first that fails.
pub(crate) fn test() -> anyhow::Result<()> {
    openfoam(&Options {
        library: None,
        what: None,
    })
}
