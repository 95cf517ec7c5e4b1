//! Whole jobs in virtual time. `ROPEWALK_SEED` and `ROPEWALK_SEEDS` choose the first seed and their number.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;

use ropewalk_launch_core::{OnFailure, RespawnPolicy};
use ropewalk_sim::launch::{Costs, Faults, Outcome, Programs, Setting, Violation, run};

/// Counts of many jobs.
#[derive(Debug, Default)]
struct Counts {
    spawns: u32,
    inherited: u32,
    adoptions: u32,
    cuts: u32,
}

fn simulate(seeds: u64, setting: impl Fn(u64) -> Setting) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..seeds {
        let setting = setting(seed);
        match run(&setting) {
            Ok(outcome) => {
                counts.spawns += outcome.spawns;
                counts.inherited += outcome.inherited;
                counts.adoptions += outcome.adoptions;
                counts.cuts += outcome.cuts;
            }
            Err(violation) => panic!("seed {seed}: {violation:?} in {setting:#?}"),
        }
    }
    counts
}

fn respawn() -> OnFailure {
    OnFailure::Respawn(RespawnPolicy::default())
}

/// Nobody waits for ever while programs spawn programs that spawn programs, some of which are not there; each spawn
/// is answered, and a spawn that is refused is no failure of the job.
#[test]
fn spawns_are_always_answered() {
    let counts = simulate(1500, |seed| {
        Setting::drawn(seed, OnFailure::Abort, Faults::default())
    });
    assert!(counts.spawns > 1500, "only {counts:?}");
}

/// Processes and agents die while programs spawn, before, during and after: the job comes to its end and the verdict
/// names a culprit, under each policy. Ranks that only fail are replaced.
#[test]
fn deaths_during_spawns_end_in_a_verdict() {
    let kills = Faults {
        kills: 3,
        ..Faults::default()
    };
    let all = Faults {
        kills: 1,
        agent_deaths: 2,
        cuts: 2,
        ..Faults::default()
    };
    for on_failure in [OnFailure::Abort, OnFailure::Continue, respawn()] {
        for faults in [kills, all] {
            simulate(1500, |seed| Setting::drawn(seed, on_failure, faults));
        }
    }
}

/// Agents die in the middle of the tree of a job that goes on: all ranks of other hosts pass their fences, have all
/// that those put who passed them too, hear one answer to each question, and are ended by nobody.
#[test]
fn survivors_of_a_host_in_the_middle_finish() {
    for (on_failure, agent_deaths) in [
        (OnFailure::Continue, 1),
        (OnFailure::Continue, 3),
        (respawn(), 1),
        (respawn(), 3),
    ] {
        let faults = Faults {
            agent_deaths,
            cuts: 2,
            ..Faults::default()
        };
        let counts = simulate(2000, |seed| Setting::drawn(seed, on_failure, faults));
        assert!(counts.adoptions > 100, "only {counts:?}");
    }
}

/// At every rank of every host, the departure of another comes after word of all the memory that it left; and the
/// agents that serve it stay until no rank may need it.
#[test]
fn memory_is_known_before_its_rank_is_gone() {
    for (on_failure, agent_deaths) in [
        (OnFailure::Continue, 0),
        (OnFailure::Continue, 2),
        (respawn(), 0),
        (respawn(), 2),
    ] {
        let faults = Faults {
            kills: 3,
            agent_deaths,
            cuts: 3,
            ..Faults::default()
        };
        let counts = simulate(2000, |seed| Setting {
            holds_memory: true,
            ..Setting::drawn(seed, on_failure, faults)
        });
        assert!(counts.inherited > 1000, "only {counts:?}");
    }
}

/// Connections between nodes break, again and again, and the job goes as if they had not.
#[test]
fn broken_links_disturb_nobody() {
    let faults = Faults {
        cuts: 20,
        ..Faults::default()
    };
    for on_failure in [OnFailure::Abort, OnFailure::Continue] {
        let counts = simulate(2000, |seed| Setting::drawn(seed, on_failure, faults));
        assert!(counts.cuts > 4000, "only {counts:?}");
    }
}

/// Agents die, never come up, or are ended by the user while ranks write more than the links of the tree hold: the
/// launcher hears of the end of every host or of the loss of one above it, nobody stays, output comes whole from all
/// that were not lost, and never too much of it is under way.
#[test]
fn trees_always_come_to_an_end() {
    simulate(3000, |seed| writing(seed, OnFailure::Abort, 2));
}

/// In a job that adopts orphans, only those are lost that died or never came. The launcher hears of the end of all
/// others, and has their output once and whole, and nobody stays.
#[test]
fn only_the_dead_are_lost_where_orphans_are_adopted() {
    for on_failure in [OnFailure::Continue, respawn()] {
        let counts = simulate(2000, |seed| writing(seed, on_failure, 4));
        assert!(counts.adoptions > 300, "only {counts:?}");
    }
}

fn writing(seed: u64, on_failure: OnFailure, deaths: u64) -> Setting {
    let faults = Faults {
        agent_deaths: (seed % (deaths + 1)) as u32,
        missing_one_in: 20,
        is_interrupted: seed % 4 == 3,
        ..Faults::default()
    };
    Setting::writing(seed, on_failure, faults)
}

/// All of these faults together, and every policy: no promise is broken.
#[test]
fn random_faults_break_no_promise() {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let begin = number("ROPEWALK_SEED").unwrap_or(0);
    let seeds = number("ROPEWALK_SEEDS").unwrap_or(2000);
    let counts = simulate(seeds, |seed| Setting::random(begin + seed));
    println!("{counts:?} in {seeds} jobs");
}

/// A seed is one history: two runs are the same, event for event.
#[test]
fn runs_are_reproducible() {
    for seed in 0..100 {
        let setting = Setting::random(seed);
        assert_eq!(run(&setting), run(&setting), "seed {seed}");
    }
}

/// If a node does not hear one thing that came to it, most often somebody waits for ever, or the verdict is not what
/// it has to be; and this finds it. It does not find what nobody needed.
#[test]
fn a_node_that_forgets_is_found() {
    let (mut found, mut missed) = (0, Vec::new());
    for seed in 0..1000 {
        let faults = Faults {
            forgets_after: Some(seed as u32 % 20),
            ..Faults::default()
        };
        match run(&Setting::drawn(seed, OnFailure::Abort, faults)) {
            Ok(Outcome {
                verdict: Some(verdict),
                has_forgotten,
                ..
            }) if verdict.is_success() => missed.extend(has_forgotten.then_some(seed)),
            _ => found += 1,
        }
    }
    assert!(
        found > 300 && missed.len() * 3 < found,
        "{found} were found, but not {missed:?}"
    );
}

/// The start of ranks on one host costs what its parts cost: a message says that the agent is there, and another that
/// its ranks run.
#[test]
fn one_host_costs_what_its_parts_cost() {
    let costs = Costs::default();
    let setting = Setting {
        rate: f64::INFINITY,
        ..Setting::start(1, 2, 16, costs)
    };
    let start = run(&setting).unwrap().start;
    let agents = costs.start_agent + costs.login;
    let ranks = agents + costs.message + 2 * costs.start_rank;
    let known = ranks + costs.message + costs.latency + costs.message + 2 * costs.report;
    assert_eq!(
        [start.agents, start.ranks, start.known],
        [agents, ranks, known].map(Into::into)
    );
}

/// Where the tree is uneven every rank is started and known too.
#[test]
fn uneven_trees_start() {
    let outcome = run(&Setting::start(37, 37 * 33 - 5, 3, Costs::default())).unwrap();
    assert!(outcome.start.known > outcome.start.ranks && outcome.start.ranks > outcome.start.agents);
}

/// On many hosts a tree is faster than a star, which starts one agent after the other.
#[test]
fn a_tree_beats_a_star() {
    let start = |arity| {
        run(&Setting::start(1000, 10_000, arity, Costs::default()))
            .unwrap()
            .start
    };
    let (tree, star) = (start(32), start(1000));
    assert!(tree.ranks.0 * 2 < star.ranks.0, "{tree:?} {star:?}");
}

/// A job whose programs wait for each other where nobody comes is found as one that hangs: the oracle sees that.
#[test]
fn a_hang_is_seen() {
    let mut setting = Setting::drawn(1, OnFailure::Abort, Faults::default());
    setting.spec.first.ranks = 2;
    setting.programs = Programs::Fences { fences: 3, value: 1 };
    setting.faults.forgets_after = Some(1);
    setting.spec.agents.arity = 1;
    let violation = run(&setting);
    assert!(
        matches!(
            violation,
            Err(Violation::Hang {
                has_verdict: false,
                ..
            })
        ),
        "{violation:?}"
    );
}
