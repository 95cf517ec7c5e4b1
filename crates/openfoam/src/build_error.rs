//! Why the function object cannot be built.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why the function object cannot be built; each says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No OpenFOAM is there to build for.
    #[error(
        "OpenFOAM is not found: source the file etc/bashrc of an installation, which sets WM_PROJECT_DIR, or install \
         Debian's package openfoam"
    )]
    NoOpenFoam,
    /// The installation cannot compile anything.
    #[error(
        "{} has no {missing}: WM_PROJECT_DIR has to name an installation with sources and wmake, as the packages \
         openfoam*-dev of openfoam.com are", .directory.display()
    )]
    NoSources {
        /// The directory of the installation.
        directory: PathBuf,
        /// The first file that is missing there.
        missing: &'static str,
    },
    /// The library that the function object calls is not there.
    #[error(
        "{} is not found beside the executable or in ../lib: build it by `cargo build --release -p \
         ropewalk-checkpoint-c`, and name it in {}",
        crate::CHECKPOINT_LIBRARY,
        crate::CHECKPOINT_LIBRARY_VARIABLE
    )]
    NoCheckpointLibrary,
    /// A command that is needed does not start.
    #[error("cannot run {command}: is it installed?")]
    NotStarted {
        /// The name of the command.
        command: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A command has failed.
    #[error("{purpose} failed: {output}")]
    Failed {
        /// The work of the command.
        purpose: &'static str,
        /// The whole output of the command.
        output: String,
    },
    /// A file cannot be used.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
