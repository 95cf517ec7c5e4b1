//! OpenFOAM under our store: builds the function object and shows what it is good for.

mod build;
mod cases;
mod cavity;
mod solver;
mod tests;
mod trials;
mod tutorials;
mod users;

use std::path::PathBuf;

pub(crate) use self::{
    build::{Build, build},
    cases::paper::{PaperCase, kill, measure},
};

use anyhow::Context;

/// The task, and the build that it uses.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The function object, if it is there already
    #[arg(long, global = true)]
    library: Option<PathBuf>,
    /// Takes what cargo builds without --release, which takes less time
    #[arg(long, global = true)]
    dev: bool,
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
    /// Kills tutorials as they are shipped again and again, and compares times and fields of the user's
    /// outputs
    Tutorials(tutorials::Options),
}

/// Builds the function object and, if nothing else is asked for, tests it.
///
/// # Errors
/// If it cannot be built, or at the first test that fails.
pub(crate) fn openfoam(options: &Options) -> anyhow::Result<()> {
    let how = match options.dev {
        true => Build::Dev,
        false => Build::Release,
    };
    let library = match &options.library {
        Some(library) => library.canonicalize().context("there is no such library")?,
        None => build(how)?,
    };
    match &options.what {
        None => tests::test(&library, how),
        Some(What::Build) => {
            println!("{}", library.display());
            Ok(())
        }
        Some(What::Cases(options)) => cases::cases(&library, options),
        Some(What::Trials(options)) => trials::trials(&library, options),
        Some(What::Tutorials(options)) => tutorials::tutorials(&library, options),
    }
}

/// The short tests, with what the tests before have built.
///
/// # Errors
/// At the first that fails.
pub(crate) fn test() -> anyhow::Result<()> {
    openfoam(&Options {
        library: None,
        dev: true,
        what: None,
    })
}
