//! The predefined operations in real processes. What is checked stands in `examples/reduce_operations.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

/// Each operation gives what a plain loop gives, on one host and on two, also if a rank is killed after its calls: the
/// first one, which schedules, too.
#[test]
fn operations_give_what_a_loop_gives() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    for options in [&[][..], HOSTS] {
        for victim in ["none", "0", "2"] {
            let (_, stdout, stderr) = told(run_example("reduce_operations", 4, options, &[victim]));
            let ended = if victim == "none" { 4 } else { 3 };
            let count = stdout.matches("operations: ok").count();
            assert_eq!(count, ended, "{options:?}, {victim} dies: {stdout}{stderr}");
        }
    }
}
