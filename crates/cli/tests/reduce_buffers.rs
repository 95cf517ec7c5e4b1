//! Reductions of buffers by real processes. What is checked stands in `examples/reduce_buffers`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

/// The exit code of a job, its output, and how many lines of that begin so.
fn run(
    options: &[&str],
    ranks: u32,
    arguments: &[&str],
) -> (Option<i32>, String, impl Fn(&str) -> usize + use<>) {
    let (code, stdout, stderr) = told(run_example("reduce_buffers", ranks, options, arguments));
    let text = format!("{stdout}{stderr}");
    let count = move |begin: &str| stdout.lines().filter(|line| line.starts_with(begin)).count();
    (code, text, count)
}

/// A rank that is killed after its call is in the result of its round, whichever it is and by whatever ways the ranks
/// reach each other, and the rounds after it go on with the same buffers.
#[test]
fn buffers_outlive_ranks_over_rounds() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    for options in [&[][..], HOSTS] {
        for victim in ["0", "1", "3", "none"] {
            let (code, text, count) = run(options, 4, &["rounds", victim]);
            let ended = if victim == "none" { 4 } else { 3 };
            assert_eq!(code, Some(0), "{victim} dies: {text}");
            assert_eq!(
                (count("buffers: ok"), count("round: ")),
                (ended, 8),
                "{victim} dies: {text}"
            );
        }
    }
}

/// A write into a contribution that is needed kills the rank before it changes anything, and the result is of what was
/// contributed.
#[test]
fn a_stray_write_faults() {
    let (_, text, count) = run(&[], 4, &["stray", "1"]);
    let said = (
        count("stray: writes"),
        count("stray: lives"),
        count("buffers: ok"),
    );
    assert_eq!(said, (1, 0, 3), "{text}");
    assert!(text.contains("SIGSEGV"), "{text}");
}

/// Buffers come back from calls that go wrong, on the rank at fault and on the others, and can be reduced again.
#[test]
fn buffers_come_back_from_errors() {
    let (code, text, count) = run(&[], 3, &["errors"]);
    assert_eq!((code, count("buffers: ok")), (Some(0), 3), "{text}");
}

/// A rank has its buffer in memory, and the root the result too, and hardly more.
#[test]
fn no_copy_is_in_memory() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1,h2"];
    for options in [&[][..], HOSTS] {
        let (_, text, count) = run(options, 2, &["memory"]);
        assert_eq!(count("buffers: ok"), 2, "{text}");
        let peaks = text.lines().filter_map(|line| line.strip_prefix("memory: "));
        let peaks: Vec<u32> = peaks
            .filter_map(|peak| peak.split(' ').next()?.parse().ok())
            .collect();
        assert_eq!(peaks.len(), 2, "{text}");
        // Less than all of it would mean that nothing was measured.
        assert!(peaks.iter().all(|peak| (100..120).contains(peak)), "{text}");
    }
}
