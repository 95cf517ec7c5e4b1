//! Prepares cases of OpenFOAM, so that a run begins with the newest save that is whole.
//!
//! OpenFOAM writes a time step straight into the folder from which it would begin again, and takes what it
//! finds there: when it is killed in the middle, the next start fails, or goes on with other numbers. With
//! the function object `ropewalkCheckpoint` ([`build_function_object`]) a solver commits what it has written to a
//! [`Store`](ropewalk_checkpoint::Store). Before each start [`Case::prepare`] finds the newest commit that is
//! whole on all ranks, puts everything newer and everything torn aside, and tells the solver, by blocks in
//! `system/controlDict`, to begin there; [`Case::finish`] takes them out again, and the saves from among the
//! results.
//!
//! `ropewalk openfoam` does all of this. Other launchers call it around each start of a solver.
//!
//! # Examples
//! ```no_run
//! use std::{path::Path, process::Command};
//!
//! use ropewalk_openfoam::{Case, CaseOptions, build_function_object, find_checkpoint_library};
//!
//! let checkpoints = find_checkpoint_library(Path::new("/usr/bin/ropewalk"))?;
//! let library = build_function_object(&checkpoints, Path::new("/var/cache/foam"), Path::new("/opt/foam/lib"))?;
//! let case = Case::open(Path::new("cavity"), CaseOptions::new(library))?;
//! loop {
//!     let prepared = case.prepare()?;
//!     let mut solver = Command::new("icoFoam");
//!     if solver.current_dir("cavity").envs(prepared.environment).status()?.success() {
//!         break;
//!     }
//! }
//! case.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod build_error;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the effects around what is decided"
)]
mod case;
mod case_error;
mod control_dict;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "fetches sources"
)]
mod debian;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "runs a compiler"
)]
mod function_object;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "looks at the environment and the disk"
)]
mod installation;
mod loading;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "moves folders"
)]
mod parking;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "removes what is decided on"
)]
mod retention;
mod times;

pub use build_error::BuildError;
pub use case::{Case, CaseOptions, Prepared};
pub use case_error::CaseError;
pub use control_dict::{Begin, Block, Entries, Resumed, number_of, with_block, without_block};
pub use function_object::{build_function_object, find_checkpoint_library};
pub use installation::{
    CHECKPOINT_LIBRARY, CHECKPOINT_LIBRARY_VARIABLE, LIBRARY, LIBRARY_VARIABLE, START_VARIABLE, cache_folder,
    find_library, library_folder, project_directory,
};
pub use loading::Loading;
pub use retention::QUARANTINE_MAX;
pub use times::{Time, newer, outdated};
