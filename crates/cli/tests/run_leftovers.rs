//! Jobs that are killed leave nothing behind: no shared memory that MPICH gives names to, no processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::geteuid;

use rig::{ROPEWALK, parent, signal, state};

/// The folder is the whole system's, and what belongs to nobody is removed by whichever job ends first: the
/// job has one of its own, and what is left in it is listed behind what it writes. It may be cleaned up for
/// so many turns after the job.
const ALONE: &str = r#"mount -t tmpfs none /dev/shm || exit 99
    turns=$0; "$@"
    while [ $turns -gt 0 ] && [ -n "$(ls /dev/shm)" ]; do turns=$((turns - 1)); sleep 0.05; done
    for name in $(ls /dev/shm); do echo left $name; done"#;

/// Each rank makes segments as MPICH does, and waits for those of the other.
const MAKE: &str =
    "cd /dev/shm; for name in mpich_shar_tmp-$$ $$:0:0; do echo x > $name; echo made $name; done
    until [ $(ls -d *:0:0 | wc -l) = 2 ]; do sleep 0.05; done";

/// Runs two ranks that make segments, and then this. Returns those that were made and those that are left, or
/// nothing if this user may have no folder of their own.
fn segments(end: &str, turns: u32) -> Option<[Vec<String>; 2]> {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", ALONE, &turns.to_string()]);
    command.args([ROPEWALK, "run", "-n", "2", "--timeout", "60"]);
    let script = format!("{MAKE}; {end}");
    let output = command.args(["sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(99) || stderr.starts_with("unshare: ") {
        eprintln!("skipped: no folder for shared memory of its own: {stderr}");
        return None;
    }
    let stdout = String::from_utf8(output.stdout).unwrap();
    let named = |how| {
        let mut names: Vec<_> = stdout.lines().filter_map(|line| line.strip_prefix(how)).collect();
        names.sort_unstable();
        names.into_iter().map(str::to_owned).collect()
    };
    let [made, left]: [Vec<String>; 2] = ["made ", "left "].map(named);
    assert_eq!(made.len(), 4, "{stdout}{stderr}");
    Some([made, left])
}

/// Nothing is left of ranks that are killed, and of those that then are ended with them.
#[test]
fn shared_memory_of_killed_ranks_is_removed() {
    let end = "if [ $RANK = 1 ]; then kill -9 $$; fi; exec sleep 100";
    if let Some([_, left]) = segments(end, 0) {
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Nothing is left either if the agent is killed first, which removes it otherwise.
#[test]
fn shared_memory_is_removed_without_the_agent() {
    let end = "if [ $RANK = 1 ]; then kill -9 $PPID; fi; exec sleep 100";
    if let Some([_, left]) = segments(end, 600) {
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Shared memory that ranks leave when they come to their end is their own affair, and stays.
#[test]
fn shared_memory_of_others_stays() {
    if let Some([made, left]) = segments("exit 0", 0) {
        assert_eq!(left, made);
    }
}

/// A keeper that somebody stopped, alone or with its agent, goes on when the launcher is killed: it ends what
/// is left, and then itself.
#[test]
fn a_stopped_keeper_does_not_stay() {
    for stops_agent in [false, true] {
        let mut command = Command::new(ROPEWALK);
        command.args(["run", "sh", "-c", "echo $$ $PPID; exec sleep 100"]);
        let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stdout = launcher.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let (rank, agent) = line.trim().split_once(' ').unwrap();
        let keeper = parent(agent).unwrap();
        assert_eq!(parent(keeper), Some(launcher.id()));
        let keeper = keeper.to_string();
        signal("STOP", &keeper);
        if stops_agent {
            signal("STOP", agent);
        }
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let due = Instant::now() + Duration::from_secs(30);
        // Who adopts them need not have heard of their ends yet.
        let is_left = |pid: &&str| state(pid).is_some_and(|state| state != 'Z');
        while let Some(left) = [rank, agent, &keeper].iter().find(|pid| is_left(pid)) {
            assert!(Instant::now() < due, "process {left} of {line} is left");
            sleep(Duration::from_millis(10));
        }
    }
}
