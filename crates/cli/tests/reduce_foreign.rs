//! Reductions under a process manager that is not ours, in which ranks are lost. The ranks check themselves, in
//! `examples/reduce_foreign.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use rig::await_true;

const RANKS: u32 = 4;

fn program() -> PathBuf {
    rig::example("reduce_foreign")
}

/// A job under Hydra. Hydra 4.0.2 kills all ranks of a host when one of them is ended by a signal, whatever
/// `-disable-auto-cleanup` says, and none when it exits: between it and each rank there is a shell.
fn hydra(ranks: u32, words: &[&str]) -> Command {
    const SHELL: &str = "trap '' USR1; \"$@\"; code=$?; [ $code -le 128 ] || exit 1; exit $code";
    let mut command = Command::new("mpiexec.hydra");
    command
        .args(["-disable-auto-cleanup", "-n", &ranks.to_string()])
        .args(["sh", "-c", SHELL, "sh"])
        .arg(program())
        .args(words)
        .stdin(Stdio::null());
    command
}

/// The lines of the ranks in order; Hydra may add its own.
fn lines_of(output: &Output) -> Vec<String> {
    let lines = rig::sorted_lines(output);
    lines
        .into_iter()
        .filter(|line| line.starts_with("rank "))
        .collect()
}

/// Checks that each of these ranks says this, and no other rank says anything.
fn check(command: Command, ranks: impl Iterator<Item = u32>, told: &str) {
    let output = rig::output(command);
    let expected: Vec<String> = ranks.map(|rank| format!("rank {rank}: {told}")).collect();
    assert_eq!(lines_of(&output), expected, "{}", rig::text(&output.stderr));
}

fn others(victim: u32) -> impl Iterator<Item = u32> {
    (0..RANKS).filter(move |rank| *rank != victim)
}

/// A rank is killed while it reduces: a worker, or the one with the scheduler. The error of all others names it.
#[test]
fn an_error_names_the_lost_rank() {
    for (victim, millis) in [(2, "300"), (0, "317"), (3, "1003")] {
        let told = format!("contributions were lost with rank {victim}");
        let job = hydra(RANKS, &["fail", &victim.to_string(), millis]);
        check(job, others(victim), &told);
    }
}

/// The same, but the others may go on without it: each result is exact, and says who is not in it.
#[test]
fn others_go_on_without_the_lost_rank() {
    for (victim, millis) in [(2, "301"), (0, "403"), (1, "1000")] {
        let told = format!("went on without [{victim}]");
        let job = hydra(RANKS, &["exclude", &victim.to_string(), millis]);
        check(job, others(victim), &told);
    }
}

/// A copy on another rank, also of the same host, saves a contribution; what all can read is never lost.
#[test]
fn contributions_outlive_their_ranks() {
    for way in ["copies", "shared"] {
        for victim in [0, 2] {
            let job = hydra(RANKS, &[way, &victim.to_string(), "600"]);
            check(job, others(victim), "all contributions counted");
        }
    }
}

/// Two of three ranks stand still. The third is a minority, stops, and says so; the two go on without it.
#[test]
fn a_minority_stops_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut job = hydra(3, &["stop", "2", "300", path]);
    let job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = |rank: u32| {
        let text = fs::read_to_string(folder.path().join(rank.to_string())).ok()?;
        Pid::from_raw(text.parse().ok()?)
    };
    await_true("the minority does not leave", || {
        process(2).is_some_and(|process| !Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists())
    });
    for rank in [0, 1] {
        kill_process(process(rank).unwrap(), Signal::CONT).unwrap();
    }
    let output = job.wait_with_output().unwrap();
    assert_eq!(
        lines_of(&output),
        [
            "rank 0: went on without [2]",
            "rank 1: went on without [2]",
            "rank 2: error: this process, rank 2, is in the minority and stops: with those that it reaches it is one \
             of 1 of 3 members, and does not reach rank 0 1"
        ],
        "{}",
        rig::text(&output.stderr)
    );
}

/// The rank with the scheduler stands still; the others go on without it. When it goes on it is told so.
#[test]
fn a_rank_that_stood_still_is_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mut job = hydra(RANKS, &["stop", "1", "300", path]);
    let job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    rig::await_file(&folder.path().join("without"));
    let process = fs::read_to_string(folder.path().join("0")).unwrap();
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    kill_process(process, Signal::CONT).unwrap();
    let output = job.wait_with_output().unwrap();
    assert_eq!(
        lines_of(&output),
        [
            "rank 0: error: this process, rank 0 (incarnation 0), is fenced: the others count it as gone",
            "rank 1: went on without [0]",
            "rank 2: went on without [0]",
            "rank 3: went on without [0]",
        ],
        "{}",
        rig::text(&output.stderr)
    );
}
