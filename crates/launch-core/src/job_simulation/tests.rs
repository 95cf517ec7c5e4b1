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
        all.cuts += counts.cuts;
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
        cuts: 0,
        forgets_after: None,
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
            cuts: 0,
            forgets_after: None,
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
            cuts: 2,
            forgets_after: None,
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
            cuts: 2,
            forgets_after: None,
            on_failure: OnFailure::Continue,
        };
        let counts = simulate(0..2000, faults, |_| {});
        assert!(counts.adoptions > 100, "only {counts:?}");
    }
}

/// At every rank of every host, the departure of another comes after word of all the memory that it left; and the agents
/// that serve it stay until no rank may need it.
#[test]
fn memory_is_known_before_its_rank_is_gone() {
    let respawn = OnFailure::Respawn(RespawnPolicy::default());
    for (on_failure, agent_deaths) in [(OnFailure::Continue, 0), (OnFailure::Continue, 2), (respawn, 0)] {
        let faults = Faults {
            kills: 3,
            agent_deaths,
            cuts: 3,
            forgets_after: None,
            on_failure,
        };
        let mut inherited = 0;
        for seed in 0..2000 {
            let mut world = World::new(seed, faults);
            world.memory.is_used = true;
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
            let (_, counts) = result.unwrap_or_else(|_| panic!("seed {seed} of {faults:?}"));
            inherited += counts.inherited;
        }
        assert!(inherited > 1000, "only {inherited}");
    }
}

/// Connections between nodes break, again and again, and the job goes as if they had not.
#[test]
fn broken_links_disturb_nobody() {
    for on_failure in [OnFailure::Abort, OnFailure::Continue] {
        let faults = Faults {
            kills: 0,
            agent_deaths: 0,
            cuts: 20,
            forgets_after: None,
            on_failure,
        };
        let counts = simulate(0..2000, faults, |verdict| {
            assert!(verdict.is_success(), "{verdict}")
        });
        assert!(counts.cuts > 4000, "only {counts:?}");
    }
}

/// If a node does not hear one thing that came to it, most often somebody waits for ever, or the verdict is not what it has to
/// be; and this finds it. What it does not find is what nobody needed.
#[test]
fn a_node_that_forgets_is_found() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (mut found, mut missed) = (0, Vec::new());
    for seed in 0..1000 {
        let faults = Faults {
            kills: 0,
            agent_deaths: 0,
            cuts: 0,
            forgets_after: Some(seed as u32 % 20),
            on_failure: OnFailure::Abort,
        };
        match std::panic::catch_unwind(|| World::new(seed, faults).run()) {
            Ok((verdict, counts)) if verdict.is_success() => {
                missed.extend(counts.has_forgotten.then_some(seed))
            }
            _ => found += 1,
        }
    }
    std::panic::set_hook(hook);
    assert!(
        found > 300 && missed.len() * 3 < found,
        "{found} were found, but not {missed:?}"
    );
}
