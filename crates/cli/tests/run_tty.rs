//! `ropewalk run` on a terminal: one line that says how far the job is, and nothing of it left on the screen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output, Stdio};

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Runs a job in front of a terminal of its own, and returns all that was written there.
fn on_terminal(words: &str) -> String {
    let Output { status, stdout, .. } = Command::new("timeout")
        .args([
            "60",
            "script",
            "-qec",
            &format!("{ROPEWALK} run {words}"),
            "/dev/null",
        ])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .output()
        .expect("script is missing: install the Debian package bsdutils");
    let written = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{written}");
    written
}

/// The lines that are on a terminal after all of this was written to it.
fn screen(written: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut column = 0;
    let mut rest = written.chars();
    while let Some(character) = rest.next() {
        let line = lines.last_mut().unwrap();
        match character {
            '\r' => column = 0,
            '\n' => lines.push(String::new()),
            '\x1b' => {
                assert_eq!((rest.next(), rest.next()), (Some('['), Some('K')));
                line.truncate(column);
            }
            character => {
                assert!(line.len() == column, "{line:?} was written over");
                line.push(character);
                column += 1;
            }
        }
    }
    lines
}

/// The line comes and goes with what happens; what the ranks write stands on the screen as if it had never
/// been there, also a line without an end, which it does not touch.
#[test]
fn a_terminal_shows_how_far_the_job_is() {
    let script = "sleep 2; echo out$RANK; sleep 2; if [ $RANK = 0 ]; then printf end; sleep 2; printf ed; fi";
    let written = on_terminal(&format!("-n 2 sh -c '{script}'"));
    assert!(written.contains("ropewalk: 2 of 2 ranks run, 0:0"), "{written:?}");
    let mut lines = screen(&written);
    lines[..2].sort_unstable();
    assert_eq!(lines, ["out0", "out1", "ended"], "{written:?}");
}

/// Nothing of it is written where nobody looks: not to a pipe, and not for a job that is over at once.
#[test]
fn nothing_is_shown_elsewhere() {
    let written = on_terminal("-n 1 true");
    assert_eq!(written, "");
    let arguments = ["run", "-n", "1", "sleep", "2"];
    let Output { stderr, .. } = Command::new(ROPEWALK)
        .args(arguments)
        .env("TERM", "xterm")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(stderr).unwrap(), "");
}
