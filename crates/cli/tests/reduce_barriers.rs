//! Barriers of real processes. What is checked stands in `examples/reduce_barriers`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

/// A barrier holds all ranks until the last has called, also one that dies after its call; those after it are the
/// others' and name the dead rank.
#[test]
fn barriers_outlive_ranks() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    for options in [&[][..], HOSTS] {
        for victim in ["none", "0", "2"] {
            let folder = tempfile::tempdir().unwrap();
            let arguments = [folder.path().to_str().unwrap(), victim];
            let (_, stdout, stderr) = told(run_example("reduce_barriers", 4, options, &arguments));
            let ended = if victim == "none" { 4 } else { 3 };
            assert_eq!(
                stdout.matches("barriers: ok").count(),
                ended,
                "{options:?}, {victim} dies: {stdout}{stderr}"
            );
        }
    }
}
