//! The standard input of `ropewalk run`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    io::Write,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rig::{PATIENCE, ROPEWALK, await_end, signal, text};

/// Rank 0 reads all of standard input, however slowly; the others read nothing.
#[test]
fn input_goes_to_rank_0_whole() {
    let input: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let count = |arguments: &[&str]| {
        let job = assert_cmd::Command::new(ROPEWALK)
            .arg("run")
            .args(arguments)
            .write_stdin(input.as_str())
            .timeout(PATIENCE)
            .assert()
            .code(0);
        text(&job.get_output().stdout)
    };
    let counts = count(&["-n", "4", "-l", "wc", "-l"]);
    let mut lines: Vec<_> = counts.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 100000", "[1] 0", "[2] 0", "[3] 0"]);
    assert_eq!(count(&["sh", "-c", "sleep 0.5; wc -l"]), "100000\n");
}

/// Megabytes of input come whole and in order, also when the rank reads them in small pieces and with pauses.
#[test]
fn much_input_comes_in_order() {
    let input: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    for program in [
        "exec cat",
        "for i in 1 2 3; do head -c 100001; sleep 0.1; done; exec cat",
    ] {
        let job = assert_cmd::Command::new(ROPEWALK)
            .args(["run", "-n", "2", "sh", "-c", program])
            .write_stdin(input.as_slice())
            .timeout(PATIENCE)
            .assert()
            .code(0);
        assert!(job.get_output().stdout == input, "{program}: other bytes came");
    }
}

/// Input that a rank does not read stays where it comes from, but for a bounded part.
#[test]
fn unread_input_is_not_kept() {
    let mut job = Command::new(ROPEWALK)
        .args(["run", "-n", "1", "sleep", "60"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = job.stdin.take().unwrap();
    rustix::io::ioctl_fionbio(&stdin, true).unwrap();
    let mut written = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_secs(2) {
        match stdin.write(&[0; 64 << 10]) {
            Ok(length) => {
                written += length;
                last = Instant::now();
            }
            Err(_) => sleep(Duration::from_millis(10)),
        }
        assert!(written < 2 << 20, "nobody reads, and {written} bytes were taken");
    }
    assert!(written > 0, "no input was taken");
    signal("TERM", job.id());
    await_end(&mut job, PATIENCE);
}

/// A rank that never reads its input keeps nothing from ending, endless as the input may be.
#[test]
fn a_rank_need_not_read_its_input() {
    let mut endless = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
    let mut job = Command::new(ROPEWALK)
        .args(["run", "-n", "2", "sleep", "0.5"])
        .stdin(endless.stdout.take().unwrap())
        .spawn()
        .unwrap();
    assert!(await_end(&mut job, PATIENCE).success());
    await_end(&mut endless, PATIENCE);
}
