//! A job that is so large that ranks carry messages between others and the scheduler. What is checked stands in
//! `examples/reduce_relayed`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{run_example, told};

const RANKS: u32 = 64;
const HOSTS: &str = "h1:8,h2:8,h3:8,h4:8,h5:8,h6:8,h7:8,h8:8";

/// Results are whole although a rank dies that carries messages, or one whose messages are carried.
#[test]
fn a_lost_relay_costs_nothing() {
    for victim in ["8", "13"] {
        let job = run_example(
            "reduce_relayed",
            RANKS,
            &["-launcher", "fork", "-hosts", HOSTS],
            &[victim],
        );
        let (_, stdout, stderr) = told(job);
        let ended = stdout.matches("relayed: ok").count();
        assert_eq!(ended, RANKS as usize - 1, "victim {victim}: {stdout}{stderr}");
    }
}
