//! Why a case cannot be prepared.

use std::{io, path::PathBuf};

use ropewalk_checkpoint::StoreError;
use thiserror::Error;

/// Why a case cannot be prepared; each says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The folder is not a case.
    #[error("{} is no case of OpenFOAM: it has no system/controlDict", .0.display())]
    NoCase(PathBuf),
    /// OpenFOAM is not there.
    #[error(
        "OpenFOAM is not found: set WM_PROJECT_DIR, as its bashrc does, or install Debian's package openfoam"
    )]
    NoOpenFoam,
    /// The function object is not there.
    #[error(
        "the function object {} is not found: build it by `ropewalk openfoam build`, or name it in {}",
        crate::LIBRARY,
        crate::LIBRARY_VARIABLE
    )]
    NoLibrary,
    /// A parallel run needs a decomposed case.
    #[error(
        "{} has no folder {missing} for a run with {ranks} ranks: run decomposePar for as many", .case.display()
    )]
    NotDecomposed {
        /// The case.
        case: PathBuf,
        /// The first folder that is missing.
        missing: String,
        /// How many ranks there are.
        ranks: u32,
    },
    /// The checkpoints are of a job of another size.
    #[error(
        "the checkpoints in {} are of a run with {found} ranks, and this one has {ranks}: to begin anew, move them \
         away", .directory.display()
    )]
    OtherRanks {
        /// Where they are.
        directory: PathBuf,
        /// How many ranks saved.
        found: u32,
        /// How many there are now.
        ranks: u32,
    },
    /// There is nothing to begin with.
    #[error("{} has no time to begin at: expected {expected}", .folder.display())]
    NoTime {
        /// Where times are.
        folder: PathBuf,
        /// The time that should be there, or `one` for any.
        expected: String,
    },
    /// Something newer lies in the way of the solver, which would begin there.
    #[error("cannot put aside what must not be restored: {0}")]
    Stuck(String),
    /// The store says no.
    #[error(transparent)]
    Store(#[from] StoreError),
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
