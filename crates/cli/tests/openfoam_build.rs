//! `ropewalk openfoam build` with an OpenFOAM whose `wmake` is a script.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// A home with an installation below it.
struct Home(TempDir);

impl Home {
    /// With a `wmake` that does this.
    fn new(wmake: &str) -> Self {
        let home = Self(TempDir::new().unwrap());
        let foam = home.foam();
        for (name, text) in [
            ("etc/bashrc", SOURCED),
            ("wmake/wmake", &format!("#!/bin/sh\n{wmake}\n")),
            ("src/OpenFOAM/lnInclude/functionObject.H", ""),
        ] {
            let path = foam.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        home
    }

    fn foam(&self) -> PathBuf {
        self.0.path().join("foam")
    }

    fn build(&self, arguments: &[&str]) -> Output {
        let library = self.0.path().join("given.so");
        fs::write(&library, "the library of checkpoints").unwrap();
        Command::new(env!("CARGO_BIN_EXE_ropewalk"))
            .args(["openfoam", "build"])
            .args(arguments)
            .env("HOME", self.0.path())
            .env("WM_PROJECT_DIR", self.foam())
            .env("RW_CHECKPOINT_LIBRARY", library)
            .env_remove("FOAM_USER_LIBBIN")
            .env_remove("WM_OPTIONS")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_DATA_HOME")
            .output()
            .unwrap()
    }
}

/// The sources of the function object are compiled by the `wmake` of the installation, with its variables, and the
/// libraries are placed in the folder of the user, with nothing beside them.
#[test]
fn the_installation_compiles() {
    let home = Home::new(
        "[ \"$1 $2 $SOURCED\" = '-s libso yes' ] && grep -q functionObject ropewalkCheckpoint.H && \
         grep -q rw_checkpoint_store rw_checkpoint.h && cat librw_checkpoint.so.0 ropewalkCheckpoint.C > \
         $(sed -n 's/^LIB = //p' Make/files).so",
    );
    for (arguments, place) in [
        (&[][..], home.0.path().join(".local/share/ropewalk")),
        (
            &["--output", home.0.path().join("chosen").to_str().unwrap()],
            home.0.path().join("chosen"),
        ),
    ] {
        let output = home.build(arguments);
        assert!(output.status.success(), "{output:?}");
        let library = place.join("libropewalkOpenFOAM.so");
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            library.to_str().unwrap()
        );
        let content = fs::read_to_string(library).unwrap();
        assert!(content.starts_with("the library of checkpoints#include \"ropewalkCheckpoint.H\""));
        assert_eq!(names(&place), ["libropewalkOpenFOAM.so", "librw_checkpoint.so.0"]);
        // Only a folder that `run` does not know has to be named.
        let is_told = String::from_utf8_lossy(&output.stderr).contains("ROPEWALK_OPENFOAM_LIBRARY=");
        assert_eq!(is_told, !arguments.is_empty());
    }
}

/// The message of a compiler that fails is told, and an older library stays as it was.
#[test]
fn a_failure_is_told() {
    let home = Home::new("echo 'error: no such header' >&2; exit 1");
    let place = home.0.path().join(".local/share/ropewalk");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("libropewalkOpenFOAM.so"), "old").unwrap();
    let output = home.build(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("error: no such header"),
        "{output:?}"
    );
    assert_eq!(names(&place), ["libropewalkOpenFOAM.so"]);
    assert_eq!(
        fs::read_to_string(place.join("libropewalkOpenFOAM.so")).unwrap(),
        "old"
    );
}

/// An installation without headers is named, with the file that is missing.
#[test]
fn missing_sources_are_told() {
    let home = Home::new("exit 1");
    fs::remove_dir_all(home.foam().join("src")).unwrap();
    let output = home.build(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    for word in [
        home.foam().to_str().unwrap(),
        "lnInclude/functionObject.H",
        "wmake",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// As that of OpenFOAM, it puts `wmake` on the path, and ends with a code that says nothing.
const SOURCED: &str = "export SOURCED=yes PATH=$WM_PROJECT_DIR/wmake:$PATH\nfalse\n";
