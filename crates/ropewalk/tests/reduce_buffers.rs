//! Reductions of buffers by real processes. What is checked stands in `examples/reduce_buffers`.

use std::{path::Path, process::Output, time::Duration};

use assert_cmd::Command;

fn run(options: &[&str], ranks: u32, arguments: &[&str]) -> Output {
    let ropewalk = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
    let program = ropewalk.with_file_name("examples").join("reduce_buffers");
    Command::new(ropewalk)
        .args([
            "run",
            "-n",
            &ranks.to_string(),
            "--on-failure",
            "continue",
            "--timeout",
            "100",
        ])
        .args(options)
        .arg(program)
        .args(arguments)
        .timeout(Duration::from_secs(120))
        .output()
        .expect("the command runs")
}

/// The output, and how often such a line stands in it.
fn lines(output: &Output) -> (String, impl Fn(&str) -> usize) {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    (text, move |begin| {
        stdout.lines().filter(|line| line.starts_with(begin)).count()
    })
}

/// A rank that is killed after its call is in the result of its round, whichever it is and by whatever ways the ranks
/// reach each other, and the rounds after it go on with the same buffers.
#[test]
fn buffers_outlive_ranks_over_rounds() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    for options in [&[][..], HOSTS] {
        for victim in ["0", "1", "3", "none"] {
            let output = run(options, 4, &["rounds", victim]);
            let (text, count) = lines(&output);
            let ended = if victim == "none" { 4 } else { 3 };
            assert_eq!(output.status.code(), Some(0), "{victim} dies: {text}");
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
    let output = run(&[], 4, &["stray", "1"]);
    let (text, count) = lines(&output);
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
    let output = run(&[], 3, &["errors"]);
    let (text, count) = lines(&output);
    assert_eq!(
        (output.status.code(), count("buffers: ok")),
        (Some(0), 3),
        "{text}"
    );
}

/// A rank has its buffer in memory, and the root the result too, and hardly more.
#[test]
fn no_copy_is_in_memory() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1,h2"];
    for options in [&[][..], HOSTS] {
        let output = run(options, 2, &["memory"]);
        let (text, count) = lines(&output);
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
