//! Ranks that are started again take part in reductions again. What is checked stands in
//! `examples/reduce_returning.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{example, run, told};

const HOSTS: [&str; 6] = [
    "-arity",
    "1",
    "-launcher",
    "fork",
    "-hosts",
    "alpha:2,beta:2,gamma:2",
];

/// Runs a job in which ranks are killed, and returns the sums of its steps: all ranks told the same ones.
#[track_caller]
fn sums(ranks: u32, options: &[&str], words: &[&str]) -> String {
    let mut command = run(&[
        "-n",
        &ranks.to_string(),
        "--on-failure",
        "respawn=20",
        "--timeout",
        "60",
    ]);
    command.args(options).arg(example("reduce_returning")).args(words);
    let (code, stdout, stderr) = told(command);
    assert_eq!(code, Some(0), "{words:?} {stdout}{stderr}");
    let mut lines: Vec<&str> = stdout
        .lines()
        .filter(|line| !line.starts_with("late: "))
        .collect();
    lines.dedup();
    // Each host has two.
    let lost = 2 * words.iter().filter(|word| word.ends_with('!')).count() as u32;
    let all = format!("{} of {ranks}: ", ranks - lost);
    let [line] = lines[..] else {
        panic!("{words:?} {stdout}{stderr}");
    };
    let Some(sums) = line.strip_prefix(&all) else {
        panic!("not all came back: {words:?} {stdout}{stderr}");
    };
    sums.to_owned()
}

/// The others go on without a rank that was killed, and with it once it is back, whichever rank it is. What it
/// contributed before its death counts.
#[test]
fn a_rank_takes_part_again() {
    for victim in 0..3 {
        let without = 0x111 ^ (1 << (4 * victim));
        let before = sums(3, &[], &["20", &format!("{victim}.0:5")]);
        assert!(before.starts_with(&format!("111*5 {without:x}*")), "{before}");
        let after = sums(3, &[], &["20", &format!("{victim}.0:5+")]);
        assert!(after.starts_with(&format!("111*6 {without:x}*")), "{after}");
    }
}

/// No rank is left of those that the job began with, and it goes on all the same; also on several hosts.
#[test]
fn all_ranks_are_replaced() {
    let kills = [
        "200", "0.0:5", "1.0:50", "2.0:100", "3.0:150", "0.1:180", "4.0:120", "5.0:170",
    ];
    sums(4, &[], &kills[..6]);
    sums(6, &HOSTS, &kills);
}

/// Two ranks die together, and others while these come back.
#[test]
fn several_ranks_come_back() {
    sums(4, &[], &["20", "0.0:5", "3.0:6", "0.1:30", "2.0:31"]);
    sums(4, &[], &["20", "0.0:5", "1.0:5", "2.0:5"]);
    sums(6, &HOSTS, &["20", "0.0:5+", "3.0:9", "5.0:9+"]);
}

/// A host is lost with its ranks, which do not come back; the others go on, also with the ranks that come back there
/// before and after.
#[test]
fn the_others_go_on_without_a_lost_host() {
    // Each below the launcher: an agent that another one has forked ends with it.
    let hosts = &HOSTS[2..];
    // With the host of the scheduler, and without.
    for (victim, without) in [(3, 0x11_0011), (0, 0x11_1100)] {
        let told = sums(6, hosts, &["60", &format!("{victim}.0:20!")]);
        assert_eq!(told, format!("111111*20 {without:x}*40"));
    }
    sums(6, hosts, &["60", "3.0:20!", "1.0:10", "4.0:30", "5.0:20"]);
    sums(6, hosts, &["200", "3.0:20!", "1.0:100!", "5.0:50"]);
}

/// Ranks die at random moments: before a call, in it, while they ask for admission, while they leave.
#[test]
fn deaths_come_at_any_time() {
    for seed in 1..=6 {
        sums(4, &[], &["100", &format!("random:{seed}:300:2")]);
        sums(6, &HOSTS, &["100", &format!("random:{seed}:300:2")]);
    }
}
