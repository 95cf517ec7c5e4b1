//! Whole reductions in virtual time, under deaths, delays and pauses drawn from a seed.

mod simulated_job;

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_reduce::{Order, Policy, ReductionError, ids::ReductionId};
use simulated_job::{Ending, Scenario, run};

const SEEDS: u64 = 400;

fn scenario(seed: u64) -> Scenario {
    let sizes = [1, 2, 3, 4, 5, 8, 13, 16];
    Scenario {
        seed,
        size: sizes[seed as usize % sizes.len()],
        stripes: [1, 4, 7][seed as usize % 3],
        reductions: 1 + (seed / 5 % 3) as u32,
        order: Order::Any,
        policy: Policy::Chunked,
        kills: (seed / 7 % 4) as u32,
        anybody: false,
        pause: seed % 4 == 1,
        gives_up: false,
    }
}

/// Goal: every reduction of every live rank ends well, with each contribution exactly once in each stripe.
fn check_exact(scenario: &Scenario, ending: &Ending) {
    for (&(rank, id), result) in &ending.results {
        let receipt = result
            .as_ref()
            .unwrap_or_else(|error| panic!("{rank} {id} {scenario:?}: {error}"));
        assert_eq!(receipt.contributions, scenario.size);
    }
    let ids: BTreeSet<ReductionId> = ending.committed.keys().map(|(id, _)| *id).collect();
    assert_eq!(ids.len() as u32, scenario.reductions);
    ids.into_iter().for_each(|id| check_content(scenario, ending, id));
}

fn check_content(scenario: &Scenario, ending: &Ending, id: ReductionId) {
    let stripes = if scenario.policy == Policy::Paper {
        1
    } else {
        scenario.stripes
    };
    for stripe in 0..stripes {
        let mut content = ending.committed[&(id, stripe)].clone();
        if scenario.order == Order::Any || scenario.policy == Policy::Paper {
            content.sort_unstable();
        }
        assert!(
            content.iter().copied().eq(0..scenario.size),
            "{id}, stripe {stripe}: {content:?} {scenario:?}"
        );
    }
}

/// Any order: deaths, pauses and late ranks change nothing about what is counted.
#[test]
fn any_order_is_exact_under_deaths() {
    for seed in 0..SEEDS * 3 {
        let scenario = scenario(seed);
        check_exact(&scenario, &run(&scenario));
    }
}

/// Fixed order: the operands are combined in order of rank even if the operation does not commute.
#[test]
fn fixed_order_is_exact_under_deaths() {
    for seed in 0..SEEDS * 3 {
        let scenario = Scenario {
            order: Order::Ordered,
            ..scenario(seed)
        };
        check_exact(&scenario, &run(&scenario));
    }
}

/// The paper's steps and the paper's recovery: exact too.
#[test]
fn the_papers_policy_is_exact_under_deaths() {
    for seed in 0..SEEDS * 3 {
        let scenario = Scenario {
            policy: Policy::Paper,
            ..scenario(seed)
        };
        check_exact(&scenario, &run(&scenario));
    }
}

/// If roots die too, and ranks that have not contributed yet: all live ranks are told the same, and what has a result
/// is exact.
#[test]
fn whoever_dies_nobody_is_left_waiting() {
    let mut ended = [0, 0];
    for seed in 0..SEEDS * 3 {
        let order = if seed % 2 == 0 { Order::Any } else { Order::Ordered };
        let policy = if seed % 6 == 0 {
            Policy::Paper
        } else {
            Policy::Chunked
        };
        let scenario = Scenario {
            anybody: true,
            kills: 1 + (seed % 3) as u32,
            order,
            policy,
            ..scenario(seed)
        };
        let ending = run(&scenario);
        let mut verdicts = BTreeMap::new();
        for ((_, id), result) in &ending.results {
            let known = verdicts.entry(*id).or_insert(result);
            assert_eq!(*known, result, "{scenario:?}");
        }
        for (id, result) in verdicts {
            ended[usize::from(result.is_ok())] += 1;
            match result {
                Ok(_) => check_content(&scenario, &ending, id),
                Err(ReductionError::ContributionLost { rank } | ReductionError::RootLost { rank }) => {
                    assert!(ending.killed.contains(rank), "{scenario:?}");
                }
                Err(error) => panic!("{scenario:?}: {error}"),
            }
        }
    }
    assert!(
        ended.into_iter().all(|count| count > 100),
        "failed and succeeded: {ended:?}"
    );
}

/// A rank that gives up, before it has called or after, takes its reductions with it: all others are told the same, either
/// the result or that this rank gave up, and nobody is left waiting.
#[test]
fn an_error_on_one_rank_reaches_all() {
    let mut ended = [0, 0];
    for seed in 0..SEEDS * 3 {
        let scenario = Scenario {
            gives_up: true,
            kills: (seed % 2) as u32,
            ..scenario(seed)
        };
        let ending = run(&scenario);
        let quitter = ending.gave_up;
        let mut verdicts = BTreeMap::new();
        for (&(rank, id), result) in &ending.results {
            if Some(rank) != quitter {
                let known = verdicts.entry(id).or_insert(result);
                assert_eq!(*known, result, "{scenario:?}");
            }
        }
        for (id, result) in verdicts {
            ended[usize::from(result.is_ok())] += 1;
            match result {
                Ok(_) => check_content(&scenario, &ending, id),
                Err(ReductionError::Withdrawn { rank, .. }) => assert_eq!(Some(*rank), quitter),
                Err(error) => panic!("{scenario:?}: {error}"),
            }
        }
    }
    assert!(
        ended.into_iter().all(|count| count > 100),
        "failed and succeeded: {ended:?}"
    );
}

/// The same seed gives the same events, so that a failing seed can be replayed.
#[test]
fn a_seed_replays_exactly() {
    for seed in 0..40 {
        let scenario = scenario(seed);
        assert_eq!(run(&scenario).log, run(&scenario).log);
    }
}

/// The deaths of these scenarios do strike in the middle: many of them cost work that is done again.
#[test]
fn deaths_strike_in_the_middle() {
    let redone = (0..SEEDS).filter(|&seed| {
        let ending = run(&scenario(seed));
        ending
            .results
            .values()
            .flatten()
            .any(|receipt| receipt.merges_redone > 0)
    });
    let redone = redone.count();
    assert!(
        redone > SEEDS as usize / 10,
        "only {redone} of {SEEDS} runs lost work"
    );
}

/// The root's link carries each byte once: it takes part in the last combination of each stripe only.
#[test]
fn the_root_pulls_each_stripe_once() {
    for order in [Order::Any, Order::Ordered] {
        for seed in 0..100 {
            let scenario = Scenario {
                order,
                kills: 0,
                size: 8,
                reductions: 1,
                ..scenario(seed)
            };
            assert_eq!(run(&scenario).pulls_of_root, u64::from(scenario.stripes));
        }
    }
}
