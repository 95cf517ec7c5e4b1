//! Seeds that found a bug once, in the files beside this one. Each is run again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;

use ropewalk_sim::{launch, reduction, seed_lines, views};

fn seeds(file: &str) -> impl Iterator<Item = u64> {
    seed_lines(file).map(|seed| seed.parse().unwrap())
}

/// No seed of a file breaks a promise.
fn replay<O, V: Debug>(file: &str, run: impl Fn(u64) -> Result<O, V>) {
    assert_ne!(seeds(file).count(), 0);
    for seed in seeds(file) {
        if let Err(violation) = run(seed) {
            panic!("seed {seed}: {violation:?}");
        }
    }
}

/// Reductions: the jobs that `ropewalk sim reduce --seeds 1 --seed SEED` runs.
#[test]
fn reductions() {
    replay(include_str!("reduce.txt"), |seed| {
        let settings = reduction::Setting::of_seed(seed);
        settings
            .iter()
            .try_for_each(|setting| reduction::run(setting).map(drop))
    });
}

/// Whole jobs, as `ropewalk sim launch --seeds 1 --seed SEED` runs them.
#[test]
fn jobs() {
    replay(include_str!("launch.txt"), |seed| {
        launch::run(&launch::Setting::random(seed))
    });
}

/// The agreement on views.
#[test]
fn agreements() {
    replay(include_str!("views.txt"), |seed| {
        views::run(&views::Setting::drawn(seed))
    });
}
