//! Calls while an agent is stopped. What is checked stands in `examples/reduce_full_link.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

/// No call waits for an agent that does not read its links, and all contributions count in the end, those of a rank
/// that dies too: with identifiers and without, on one host and on two.
#[test]
fn calls_do_not_wait_for_the_agent() {
    const HOSTS: &[&str] = &["-launcher", "fork", "-hosts", "h1:2,h2:2"];
    for (calls, options) in [("named", &[][..]), ("named", HOSTS), ("numbered", HOSTS)] {
        let (_, stdout, stderr) = told(run_example("reduce_full_link", 4, options, &[calls]));
        let count = stdout.matches("full link: ok").count();
        assert_eq!(count, 3, "{calls}, {options:?}: {stdout}{stderr}");
    }
}
