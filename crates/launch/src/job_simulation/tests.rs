//! What holds of every job, whatever is drawn.

use super::*;
use crate::{job::RespawnPolicy, verdict::Failure};

fn simulate(seeds: std::ops::Range<u64>, faults: Faults, check: impl Fn(&Verdict)) -> Counts {
    let mut all = Counts::default();
    for seed in seeds {
        let result = std::panic::catch_unwind(|| World::new(seed, faults).run());
        let Ok((verdict, counts)) = result else {
            panic!("seed {seed} of {faults:?}");
        };
        all.spawns += counts.spawns;
        all.adoptions += counts.adoptions;
        check(&verdict);
    }
    all
}

/// Nobody waits for ever while programs spawn programs that spawn programs, some of which are not there; each spawn is
/// answered, and a spawn that is refused is no failure of the job.
#[test]
fn spawns_are_always_answered() {
    let faults = Faults {
        kills: 0,
        agent_deaths: 0,
        on_failure: OnFailure::Abort,
    };
    let counts = simulate(0..1500, faults, |verdict| {
        assert!(verdict.is_success(), "{verdict}")
    });
    assert!(counts.spawns > 1500, "only {counts:?}");
}

/// Whoever dies while programs spawn, processes and agents, before, during and after: the job comes to its end and the
/// verdict names a culprit, under each policy.
#[test]
fn deaths_during_spawns_end_in_a_verdict() {
    let respawn = OnFailure::Respawn(RespawnPolicy::default());
    for on_failure in [OnFailure::Abort, OnFailure::Continue, respawn] {
        let faults = Faults {
            kills: 3,
            agent_deaths: 0,
            on_failure,
        };
        simulate(0..1500, faults, |verdict| {
            // Only what was spawned, and is not replaced, can make a job fail that replaces its ranks.
            let is_spawned = |failure: &Failure| failure.spawned.is_some();
            let is_well = verdict.is_success() || verdict.failures.iter().all(is_spawned);
            assert!(on_failure != respawn || is_well, "{verdict}");
        });
        let faults = Faults {
            kills: 1,
            agent_deaths: 2,
            on_failure,
        };
        simulate(0..1500, faults, |_| {});
    }
}

/// Agents die in the middle of the tree of a job that goes on: all ranks of other hosts pass their fences, have all that
/// those put who passed them too, hear one answer to each question, and are ended by nobody; and the verdict names the
/// agent.
#[test]
fn survivors_of_a_host_in_the_middle_finish() {
    for agent_deaths in [1, 3] {
        let faults = Faults {
            kills: 0,
            agent_deaths,
            on_failure: OnFailure::Continue,
        };
        let counts = simulate(0..2000, faults, |_| {});
        assert!(counts.adoptions > 100, "only {counts:?}");
    }
}
