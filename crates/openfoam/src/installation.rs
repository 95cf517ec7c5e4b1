//! Where OpenFOAM and the function object are.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::case_error::CaseError;

/// The directory that OpenFOAM's programs need as `WM_PROJECT_DIR` in their environment: the value of that
/// variable, or the directory of Debian's package.
///
/// # Errors
/// If neither is there.
pub fn project_directory() -> Result<PathBuf, CaseError> {
    let given = env::var_os("WM_PROJECT_DIR").map(PathBuf::from);
    given
        .into_iter()
        .chain([PathBuf::from(DEBIAN)])
        .find(|directory| directory.join("etc/controlDict").exists())
        .ok_or(CaseError::NoOpenFoam)
}

/// The library of the function object: the one that [`LIBRARY_VARIABLE`] names, or one beside the executable,
/// in `../lib` or in `../lib/ropewalk` from there.
///
/// # Errors
/// If it is in none of these places.
pub fn find_library(executable: &Path) -> Result<PathBuf, CaseError> {
    if let Some(given) = env::var_os(LIBRARY_VARIABLE) {
        let given = PathBuf::from(given);
        return match given.exists() {
            true => Ok(given),
            false => Err(CaseError::NoLibrary),
        };
    }
    let folder = executable.parent().unwrap_or(Path::new("."));
    ["", "../lib", "../lib/ropewalk"]
        .into_iter()
        .map(|place| folder.join(place).join(LIBRARY))
        .find(|path| path.exists())
        .ok_or(CaseError::NoLibrary)
}

/// The library's name. OpenFOAM appends nothing to it.
pub const LIBRARY: &str = "libropewalkOpenFOAM.so";

/// The variable that names the library where it is in none of the usual places.
pub const LIBRARY_VARIABLE: &str = "ROPEWALK_OPENFOAM_LIBRARY";

/// The variable by which the function object knows at which time the case was prepared to begin.
pub const START_VARIABLE: &str = "ROPEWALK_OPENFOAM_START";

const DEBIAN: &str = "/usr/share/openfoam";
