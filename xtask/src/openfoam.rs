//! OpenFOAM under our store: builds the function object and shows what it is good for.

use std::path::PathBuf;

use anyhow::Context;
use ropewalk_openfoam_trials::{cases, trials, tutorials};

use crate::{
    debian, project,
    shell::{cargo, run},
};

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

/// How Rust's parts are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Release,
    /// Built in less time, to try something.
    Dev,
}

impl Build {
    /// Where cargo puts what it builds.
    fn folder(self) -> anyhow::Result<PathBuf> {
        let folder = match self {
            Self::Release => "release",
            Self::Dev => "debug",
        };
        Ok(project::target()?.join(folder))
    }

    /// Builds the command and the libraries. Open MPI's programs need that of PMI too.
    fn build(self) -> anyhow::Result<PathBuf> {
        if self == Self::Dev {
            return project::build();
        }
        let words = "build --release --locked -p ropewalk-cli -p ropewalk-checkpoint-c -p ropewalk-pmi-c";
        run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
        self.folder()
    }
}

/// Builds the function object beside the command that builds it, and says where it is.
///
/// # Errors
/// If something is missing, or does not compile.
pub(crate) fn build(how: Build) -> anyhow::Result<PathBuf> {
    debian::provide_openfoam()?;
    ropewalk_openfoam_trials::build(&how.build()?, &project::target()?)
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
    if !matches!(options.what, Some(What::Build | What::Trials(_))) {
        debian::provide_examples()?;
    }
    match &options.what {
        None => ropewalk_openfoam_trials::test(&library, &how.folder()?, &project::target()?),
        Some(What::Build) => {
            println!("{}", library.display());
            Ok(())
        }
        Some(What::Cases(options)) => cases::cases(&library, &project::target()?.join("openfoam"), options),
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
