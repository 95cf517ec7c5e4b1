//! Where OpenFOAM and the function object are.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{case_error::CaseError, debian};

/// The directory that OpenFOAM's programs need as `WM_PROJECT_DIR` in their environment: the value of that
/// variable, or the directory of Debian's package.
///
/// # Errors
/// If neither is there.
pub fn project_directory() -> Result<PathBuf, CaseError> {
    let given = env::var_os("WM_PROJECT_DIR").map(PathBuf::from);
    given
        .into_iter()
        .chain([PathBuf::from(debian::DIRECTORY)])
        .find(|directory| directory.join("etc/controlDict").exists())
        .ok_or(CaseError::NoOpenFoam)
}

/// The library of the function object: the one that [`LIBRARY_VARIABLE`] names, or one in [`library_folder`], or one
/// beside the executable, in `../lib` or in `../lib/ropewalk` from there.
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
    let own = library_folder().map(|folder| folder.join(LIBRARY));
    own.into_iter()
        .chain(beside(executable, LIBRARY))
        .find(|path| path.exists())
        .ok_or(CaseError::NoLibrary)
}

/// The folder for a library of the user's own: that of the OpenFOAM whose variables are set, `FOAM_USER_LIBBIN`, or
/// `ropewalk` among the user's data. `None` if the user has no home.
pub fn library_folder() -> Option<PathBuf> {
    let user_libraries = env::var_os("FOAM_USER_LIBBIN").map(PathBuf::from);
    user_libraries.or_else(|| user_folder("XDG_DATA_HOME", ".local/share"))
}

/// The folder for sources that are fetched, among what the user can lose: `None` if the user has no home.
pub fn cache_folder() -> Option<PathBuf> {
    user_folder("XDG_CACHE_HOME", ".cache")
}

/// Our folder in one that a variable names, by default one below the home (XDG Base Directory Specification 0.8).
fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = env::var_os(variable).map(PathBuf::from);
    named
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(below_home)))
        .map(|folder| folder.join("ropewalk"))
}

/// The places of a library that was installed with an executable.
pub(crate) fn beside(executable: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    let folder = executable.parent().unwrap_or(Path::new("."));
    ["", "../lib", "../lib/ropewalk"]
        .into_iter()
        .map(move |place| folder.join(place).join(name))
}

/// The library's name. OpenFOAM appends nothing to it.
pub const LIBRARY: &str = "libropewalkOpenFOAM.so";

/// The variable that names the library where it is in none of the usual places.
pub const LIBRARY_VARIABLE: &str = "ROPEWALK_OPENFOAM_LIBRARY";

/// The variable by which the function object knows at which time the case was prepared to begin.
pub const START_VARIABLE: &str = "ROPEWALK_OPENFOAM_START";

/// The name by which the function object loads the library of checkpoints.
pub const CHECKPOINT_LIBRARY: &str = "librw_checkpoint.so.0";

/// The variable that names the library of checkpoints where it is in none of the usual places.
pub const CHECKPOINT_LIBRARY_VARIABLE: &str = "RW_CHECKPOINT_LIBRARY";
