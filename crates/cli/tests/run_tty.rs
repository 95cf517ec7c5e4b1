//! `ropewalk run` on a terminal: one line that says how far the job is, and nothing of it left on the
//! screen; and ranks that have terminals of their own.

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

/// With -tty both streams of a rank are terminals that stay apart, and a rank that is killed has lost nothing that it
/// printed, on this host and on others; with a pipe it loses what it had not flushed.
#[test]
fn ranks_have_terminals() {
    let script = "import os, sys; print(os.isatty(1), os.isatty(2), os.isatty(0)); \
        os.isatty(2) and os.write(2, b'%d columns\\n' % os.get_terminal_size(2).columns); os.kill(os.getpid(), 9)";
    let run = |options: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            ROPEWALK,
            "run",
            "-launcher",
            "fork",
            "--on-failure",
            "continue",
        ]);
        let Output { stdout, stderr, .. } = command
            .args(options)
            .args(["python3", "-c", script])
            .env_remove("COLUMNS")
            .env_remove("PYTHONUNBUFFERED")
            .output()
            .unwrap();
        [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    for hosts in [&["-n", "2", "-tty"][..], &["-hosts", "a,b", "-n", "2", "-tty"]] {
        let [stdout, stderr] = run(hosts);
        assert_eq!(stdout, "True True False\n".repeat(2), "{hosts:?}: {stderr}");
        assert_eq!(stderr.matches("80 columns\n").count(), 2, "{hosts:?}: {stderr}");
    }
    let [stdout, _] = run(&["-n", "1"]);
    assert_eq!(stdout, "");
}

/// A rank with a terminal that writes much and ends at once loses nothing and gets nothing changed.
#[test]
fn terminals_change_nothing() {
    let script = "for i in $(seq 20000); do printf 'line %d\\tend\\r\\n' $i; done";
    let Output { stdout, .. } = Command::new("timeout")
        .args(["60", ROPEWALK, "run", "-tty", "-n", "1", "sh", "-c", script])
        .output()
        .unwrap();
    let expected: String = (1..=20_000)
        .map(|number| format!("line {number}\tend\r\n"))
        .collect();
    assert!(String::from_utf8(stdout).unwrap() == expected);
}

/// Labels leave colours to a terminal, and take them out of what goes elsewhere; without labels nothing is taken out.
#[test]
fn labels_leave_colours_to_terminals() {
    let script = "printf \"\\033[31mred\\033[0m\\n\"";
    let written = on_terminal(&format!("-l -n 1 sh -c '{script}'"));
    assert_eq!(written, "[0] \x1b[31mred\x1b[0m\r\n");
    for (label, expected) in [(&["-l"][..], "[0] red\n"), (&[], "\x1b[31mred\x1b[0m\n")] {
        let mut command = Command::new(ROPEWALK);
        command
            .arg("run")
            .args(label)
            .args(["-n", "1", "sh", "-c", script]);
        let stdout = command.output().unwrap().stdout;
        assert_eq!(String::from_utf8(stdout).unwrap(), expected);
    }
}
