//! Calls of groups by real processes. What is checked stands in `examples/reduce_groups.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

#[track_caller]
fn passes(scenario: &str, ranks: u32, ended: usize) {
    let (code, stdout, stderr) = told(run_example("reduce_groups", ranks, &[], &[scenario]));
    let count = stdout.lines().filter(|line| *line == "groups: ok").count();
    assert_eq!((code, count), (Some(0), ended), "{stdout}{stderr}");
}

/// Rows and columns of a grid reduce in tables of their own.
#[test]
fn rows_and_columns_end_in_tables() {
    passes("grid", 6, 6);
}

/// The posted contributions of a lost member count in all groups, also for a scheduler that is in none of them. The
/// survivors have a table again.
#[test]
fn survivors_have_a_table() {
    for ranks in [3, 6] {
        passes("survivors", ranks, ranks as usize - 1);
    }
}

/// More groups than tables are right too.
#[test]
fn groups_without_a_table_go_by_the_scheduler() {
    passes("many", 4, 4);
}
