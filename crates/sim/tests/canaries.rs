//! Known bugs of the reduction, put back one by one: the oracle, unchanged, finds each of them.

use ropewalk_reduce_core::canary::{Canary, put_back};
use ropewalk_sim::reduction::{Setting, run};

const SEEDS: u64 = 1_000;

/// Each bug breaks a promise within 1,000 seeds, in a job that keeps all promises without the bug.
#[test]
fn every_canary_is_found() {
    let mut missed = Vec::new();
    for canary in Canary::ALL {
        let breaks = |bug, setting: &Setting| {
            put_back(bug);
            run(setting).is_err()
        };
        let finds = |setting: &Setting| breaks(Some(canary), setting) && !breaks(None, setting);
        match (0..SEEDS).find(|seed| Setting::of_seed(*seed).iter().any(finds)) {
            Some(seed) => println!("{canary:?}: seed {seed}"),
            None => missed.push(canary),
        }
    }
    put_back(None);
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
