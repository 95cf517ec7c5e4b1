//! Collectives of real processes. What is checked stands in `examples/collectives`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

/// A loop of all collectives goes on, and each gives every rank that lives what it should get, whichever rank dies in
/// its middle: the one that schedules, where chunks become final, too.
#[test]
fn a_loop_outlives_a_rank() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    for options in [&[][..], HOSTS] {
        for victim in ["none", "0", "1", "3"] {
            let (_, stdout, stderr) = told(run_example("collectives", 4, options, &[victim]));
            let ended = if victim == "none" { 4 } else { 3 };
            assert_eq!(
                stdout.matches("collectives: ok").count(),
                ended,
                "{options:?}, {victim} dies: {stdout}{stderr}"
            );
        }
    }
}
