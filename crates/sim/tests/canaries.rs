//! Known bugs of the reduction, put back one by one: the oracle, unchanged, finds each of them.

use ropewalk_reduce_core::canary::{Canary, put_back};
use ropewalk_sim::reduction::{Setting, run};

const SEEDS: u64 = 5_000;

/// Each bug breaks a promise within 5,000 seeds.
#[test]
fn every_canary_is_found() {
    let mut missed = Vec::new();
    for canary in Canary::ALL {
        put_back(Some(canary));
        match (0..SEEDS).find(|seed| run(&Setting::random(*seed)).is_err()) {
            Some(seed) => println!("{canary:?}: seed {seed}"),
            None => missed.push(canary),
        }
    }
    put_back(None);
    assert_eq!(missed, [], "not found within {SEEDS} seeds");
}
