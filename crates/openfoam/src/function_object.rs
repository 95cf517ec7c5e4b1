//! Builds the function object `ropewalkCheckpoint` with the `wmake` of the OpenFOAM that will load it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{self, Command},
};

use crate::{
    build_error::BuildError,
    debian,
    installation::{CHECKPOINT_LIBRARY, CHECKPOINT_LIBRARY_VARIABLE, LIBRARY, beside},
};

/// Builds the function object, and returns the path of its library in the folder `output`.
///
/// The OpenFOAM is that of `WM_PROJECT_DIR`. Without this variable it is Debian's package, whose sources are fetched
/// into the folder `cache` and stay there. A copy of `checkpoint_library` is placed beside the library. Both appear by
/// a rename, so that solvers that run keep what they have loaded.
///
/// # Errors
/// If there is no OpenFOAM with sources, or a command fails.
pub fn build_function_object(
    checkpoint_library: &Path,
    cache: &Path,
    output: &Path,
) -> Result<PathBuf, BuildError> {
    let installation = installation(cache)?;
    let making = Making::new(output)?;
    for (name, content) in SOURCES {
        making.write(name, content)?;
    }
    let copy = making.folder.join(CHECKPOINT_LIBRARY);
    fs::copy(checkpoint_library, &copy).map_err(failed("copy", checkpoint_library))?;
    installation.run(WMAKE, "compiling the function object", &making.folder)?;
    // The function object last: it finds the other beside it.
    for name in [CHECKPOINT_LIBRARY, LIBRARY] {
        let made = making.folder.join(name);
        fs::rename(&made, output.join(name)).map_err(failed("place", &made))?;
    }
    Ok(output.join(LIBRARY))
}

/// `librw_checkpoint.so`, which the function object calls: the library that [`CHECKPOINT_LIBRARY_VARIABLE`] names, or
/// one beside the executable, in `../lib` or in `../lib/ropewalk` from there, or in the package for Python.
///
/// # Errors
/// If it is in none of these places.
pub fn find_checkpoint_library(executable: &Path) -> Result<PathBuf, BuildError> {
    if let Some(named) = env::var_os(CHECKPOINT_LIBRARY_VARIABLE) {
        let named = PathBuf::from(named);
        return match named.exists() {
            true => Ok(named),
            false => Err(BuildError::NoCheckpointLibrary),
        };
    }
    // Cargo and the package for Python call it by the name without a version.
    let unversioned = CHECKPOINT_LIBRARY.trim_end_matches(".0");
    beside(executable, CHECKPOINT_LIBRARY)
        .chain(beside(executable, unversioned))
        .chain(in_python(executable, unversioned))
        .find(|path| path.exists())
        .ok_or(BuildError::NoCheckpointLibrary)
}

/// The paths of a library in the package for Python, for each Python of the environment with this executable.
fn in_python(executable: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    let folders = executable
        .parent()
        .and_then(|folder| fs::read_dir(folder.join("../lib")).ok());
    let package = Path::new("site-packages/ropewalk").join(name);
    let entries = folders.into_iter().flatten().filter_map(Result::ok);
    entries.map(move |entry| entry.path().join(&package))
}

/// The directory of an OpenFOAM with sources.
pub(crate) struct Installation {
    pub(crate) directory: PathBuf,
    /// The variables of its `etc/bashrc` are set in our environment.
    pub(crate) is_sourced: bool,
}

impl Installation {
    /// Runs a script of bash in a folder, with the variables of the installation.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn run(
        &self,
        script: &str,
        purpose: &'static str,
        folder: &Path,
    ) -> Result<String, BuildError> {
        let script = match self.is_sourced {
            true => script.to_owned(),
            // The file has a code of its own for its end, which says nothing.
            false => format!("source \"$WM_PROJECT_DIR/etc/bashrc\"\n{script}"),
        };
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .env("WM_PROJECT_DIR", &self.directory)
            .current_dir(folder);
        run(command, "bash", purpose)
    }
}

/// The OpenFOAM to build for.
fn installation(cache: &Path) -> Result<Installation, BuildError> {
    let set = env::var_os("WM_PROJECT_DIR").map(PathBuf::from);
    // Debian's directory, which some set for its programs, has no sources.
    match set.filter(|directory| directory != Path::new(debian::DIRECTORY)) {
        Some(directory) => {
            let missing = NEEDED.iter().find(|file| !directory.join(file).exists());
            match missing {
                Some(missing) => Err(BuildError::NoSources { directory, missing }),
                None => Ok(Installation {
                    directory,
                    is_sourced: env::var_os("WM_OPTIONS").is_some(),
                }),
            }
        }
        None => debian::sources(cache),
    }
}

/// Runs a command, and returns its standard output.
///
/// # Errors
/// If it does not start, or fails.
pub(crate) fn run(
    mut command: Command,
    name: &'static str,
    purpose: &'static str,
) -> Result<String, BuildError> {
    let done = command.output().map_err(|source| BuildError::NotStarted {
        command: name,
        source,
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match done.status.success() {
        true => Ok(text(&done.stdout)),
        false => Err(BuildError::Failed {
            purpose,
            output: text(&[done.stdout, done.stderr].concat()),
        }),
    }
}

/// A folder in which something is made; it is removed with this.
pub(crate) struct Making {
    pub(crate) folder: PathBuf,
}

impl Making {
    /// Makes the folder below another one, on the same file system.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn new(below: &Path) -> Result<Self, BuildError> {
        // wmake and its make run elsewhere than we.
        let below = std::path::absolute(below).map_err(failed("find", below))?;
        let folder = below.join(format!("ropewalk-{}.tmp", process::id()));
        fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
        Ok(Self { folder })
    }

    fn write(&self, name: &str, content: &str) -> Result<(), BuildError> {
        let path = self.folder.join(name);
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, content))
            .map_err(failed("write", &path))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // A folder that stays is in nobody's way.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes the error of an action on a file.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::File { action, path, source }
}

/// The files that `wmake` compiles, and those that tell it how.
const SOURCES: &[(&str, &str)] = &[
    (
        "ropewalkCheckpoint.C",
        include_str!("../function-object/ropewalkCheckpoint.C"),
    ),
    (
        "ropewalkCheckpoint.H",
        include_str!("../function-object/ropewalkCheckpoint.H"),
    ),
    (
        "rw_checkpoint.h",
        include_str!("../function-object/rw_checkpoint.h"),
    ),
    (
        "Make/files",
        "ropewalkCheckpoint.C\n\nLIB = ./libropewalkOpenFOAM\n",
    ),
    // Found beside the function object when it is loaded. wmake reads the file by the C preprocessor and make.
    (
        "Make/options",
        "EXE_INC = -I.\n\nLIB_LIBS = ./librw_checkpoint.so.0 -Wl,-rpath,\\$$ORIGIN\n",
    ),
];

const WMAKE: &str = "wmake -s libso";

/// Files of an installation that can compile a function object: if these are there, all are.
const NEEDED: &[&str] = &[
    "etc/bashrc",
    "wmake/wmake",
    "src/OpenFOAM/lnInclude/functionObject.H",
];
