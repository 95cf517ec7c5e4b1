//! Programs in C.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Our libraries for C: their names and the crates that make them.
const LIBRARIES: [(&str, &str); 3] = [
    ("pmi", "pmi-c"),
    ("pmi2", "pmi2-c"),
    ("rw_checkpoint", "checkpoint-c"),
];

/// The folder in which cargo puts our libraries for tests; users have them beside the executable.
pub(crate) fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

pub(crate) fn library(name: &str) -> PathBuf {
    libraries().join(format!("lib{name}.so"))
}

/// Compiles `source`, a path from this package, with the headers of all our libraries, and links it with some of them
/// as one links with Slurm's.
pub(crate) fn compile(source: &str, linked: &[&str], folder: &Path) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join(Path::new(source).file_stem().unwrap());
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-Wall", "-Werror", "-D_GNU_SOURCE", "-pthread", "-o"])
        .arg(&program)
        .arg(package.join(source));
    for (name, owner) in LIBRARIES {
        let headers = package.join("..").join(owner).join("include");
        command.arg(format!("-I{}", headers.display()));
        if linked.contains(&name) {
            let built = library(name);
            let needed = folder.join(format!("lib{name}.so.0"));
            if !fs::exists(&needed).unwrap() {
                symlink(&built, needed).unwrap();
            }
            command.arg(built);
        }
    }
    command.arg(format!("-Wl,-rpath,{}", folder.display())).arg("-lm");
    succeed(command, "cc is missing: install the Debian package gcc");
    program
}

/// Compiles a program of `tests/mpi` by one of `mpicc.mpich` and `mpicc.openmpi`.
pub(crate) fn compile_mpi(compiler: &str, source: &str, folder: &Path) -> PathBuf {
    let program = folder.join(format!("{source}.{compiler}"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi");
    let mut command = Command::new(compiler);
    command.arg("-o").arg(&program).arg(sources.join(source));
    let missing =
        format!("{compiler} is missing: install the Debian packages libopenmpi-dev and libmpich-dev");
    succeed(command, &missing);
    program
}

fn succeed(mut command: Command, missing: &str) {
    let output = command.output().expect(missing);
    assert!(output.status.success(), "{output:?}");
}
