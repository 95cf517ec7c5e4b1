//! The harness of the tests that run the command: commands and their ends, processes, programs in C, time.

#![allow(dead_code, unused_imports, reason = "each test program uses its part")]

mod compiled;
mod guarded;
pub(crate) mod handshake;
mod in_time;
pub(crate) mod meeting;
mod processes;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

pub(crate) use compiled::{compile, compile_mpi, libraries, library};
pub(crate) use guarded::Guarded;
pub(crate) use in_time::{LIMIT, TRIES, assert_in_time};
pub(crate) use processes::{
    all_pids, assert_none_left, assert_none_soon, await_end, await_file, await_true, marked, parent, signal,
    state,
};

/// The command.
pub(crate) const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");
/// The time that anything may take: the tests run beside each other on few cores, and MPI's ranks spin while they wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// `ropewalk run` with these words and no input.
pub(crate) fn run(words: &[&str]) -> Command {
    let mut command = Command::new(ROPEWALK);
    command.arg("run").args(words).stdin(Stdio::null());
    command
}

/// An example of this package, for ranks to run.
pub(crate) fn example(name: &str) -> PathBuf {
    let program = Path::new(ROPEWALK).with_file_name("examples").join(name);
    // Cargo builds a package's examples with its tests unless one test is asked for by name.
    assert!(
        program.exists(),
        "{} is not built: run `cargo build --examples` first",
        program.display()
    );
    program
}

/// A job of ranks that run an example of this package, and go on without those that die.
pub(crate) fn run_example(name: &str, ranks: u32, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = run(&["-n", &ranks.to_string(), "--on-failure", "continue"]);
    command.args(["--timeout", "100"]).args(options);
    command.arg(example(name)).args(arguments);
    command
}

/// The end of a command, which comes in time.
pub(crate) fn output(command: Command) -> Output {
    assert_cmd::Command::from_std(command)
        .timeout(PATIENCE)
        .output()
        .unwrap()
}

/// The exit code of a command, and what it wrote to standard output and standard error.
pub(crate) fn told(command: Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = output(command);
    (status.code(), text(&stdout), text(&stderr))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of standard output in order; ranks write theirs as it comes.
pub(crate) fn sorted_lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Writes a program for a shell.
pub(crate) fn write_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
