//! The reaction of the `ropewalk` command to the way in which it is started.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

/// A pipe that nobody reads any more is an error like others, and does not kill.
#[test]
fn a_pipe_without_a_reader_does_not_kill() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let output = Command::new(ROPEWALK)
        .args(["completions", "bash"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.signal(), None, "{output:?}");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// The first file that is opened does not become a standard stream because one was closed.
#[test]
fn closed_streams_are_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let script = "exec \"$0\" run -n 1 \
                  sh -c 'readlink /proc/$PPID/fd/0 >\"$0\"; echo said; echo said >&2' \"$1\" <&- >&- 2>&-";
    let status = Command::new("sh")
        .args(["-c", script, ROPEWALK])
        .arg(&seen)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    // The agent's, its life line.
    assert!(fs::read_to_string(seen).unwrap().starts_with("pipe:"));
}
