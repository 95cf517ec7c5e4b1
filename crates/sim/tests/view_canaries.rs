//! Known bugs of the agreement on views, put back one by one: the simulation finds each.

use ropewalk_membership::canary::{Canary, put_back};
use ropewalk_sim::views::{Setting, Violation, run};

/// Each bug leads to two views of one number within so many seeds.
#[test]
fn each_canary_is_found() {
    const SEEDS: u64 = 4_000;
    for canary in Canary::ALL {
        put_back(Some(canary));
        let found = (1..SEEDS).find(|seed| matches!(run(&Setting::drawn(*seed)), Err(Violation::Fork(_))));
        put_back(None);
        assert!(found.is_some(), "{canary:?} is not found");
        println!("{canary:?} is found by seed {found:?}");
    }
}
