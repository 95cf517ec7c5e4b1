//! Builds the function object `ropewalkCheckpoint`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::command::run;

/// Builds the library beside the command that builds it, and says where it is. Sources of OpenFOAM are kept in `cache`.
///
/// # Errors
/// If it does not compile.
pub fn build(executables: &Path, cache: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new(executables.join("ropewalk"));
    command.args(["openfoam", "build", "--output"]).arg(executables);
    // For Debian's OpenFOAM, whatever the environment has.
    command.env_remove("WM_PROJECT_DIR");
    set_variables(&mut command, cache);
    run(command)?;
    Ok(executables.join(ropewalk_openfoam::LIBRARY))
}

/// Makes a command keep sources in a folder, and take warnings of the compiler for errors.
pub(super) fn set_variables(command: &mut Command, cache: &Path) {
    command
        .env("XDG_CACHE_HOME", cache)
        .env("FOAM_EXTRA_CXXFLAGS", "-Werror");
}
