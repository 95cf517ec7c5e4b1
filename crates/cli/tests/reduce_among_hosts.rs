//! Short calls on two hosts. What is checked stands in `examples/reduce_among_hosts`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

fn check(scenario: &str, ended: usize) {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    let arguments = [folder.path().to_str().unwrap(), scenario];
    let (_, stdout, stderr) = told(run_example("reduce_among_hosts", 4, &options, &arguments));
    assert_eq!(
        stdout.matches("among hosts: ok").count(),
        ended,
        "{stdout}{stderr}"
    );
}

/// A loss on one host ends a call for which another host waits for a rank of its own.
#[test]
fn a_loss_is_told_to_hosts_that_wait_for_their_own() {
    check("lost", 3);
}

/// A call that stands behind another one has its own time-out.
#[test]
fn a_call_behind_another_times_out() {
    check("late", 4);
}
