//! Builds the function object `ropewalkCheckpoint`.

use std::{path::PathBuf, process::Command};

use crate::{
    debian, project,
    shell::{cargo, run},
};

/// How Rust's parts are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Release,
    /// Built in less time, to try something.
    Dev,
}

impl Build {
    /// Where cargo puts what it builds.
    pub(super) fn folder(self) -> anyhow::Result<PathBuf> {
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

/// Builds the library beside the command that builds it, and says where it is.
///
/// # Errors
/// If something is missing, or does not compile.
pub(crate) fn build(how: Build) -> anyhow::Result<PathBuf> {
    debian::provide_openfoam()?;
    let folder = how.build()?;
    let mut command = Command::new(folder.join("ropewalk"));
    command.args(["openfoam", "build", "--output"]).arg(&folder);
    // For Debian's OpenFOAM, whatever the environment has.
    command.env_remove("WM_PROJECT_DIR");
    set_variables(&mut command)?;
    run(command)?;
    Ok(folder.join(ropewalk_openfoam::LIBRARY))
}

/// Makes a command keep sources in the target folder, and take warnings of the compiler for errors.
pub(super) fn set_variables(command: &mut Command) -> anyhow::Result<()> {
    command
        .env("XDG_CACHE_HOME", project::target()?)
        .env("FOAM_EXTRA_CXXFLAGS", "-Werror");
    Ok(())
}
