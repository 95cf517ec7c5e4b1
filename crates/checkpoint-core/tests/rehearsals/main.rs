//! Whole runs in virtual time: what is expected of plans comes true, and what the advisor does not know it learns.

#[path = "../traces/cases.rs"]
mod cases;
mod learning;

use cases::papers_cases;
use learning::{behind_the_best, chance, mean};
use ropewalk_checkpoint_core::{AdvisorOptions, Costs, FastLevel, FixedSteps, Mtbf, Plan, Rate, Rehearsal};

/// Steps like those of the paper's cavity.
fn cavity() -> Vec<f64> {
    let [cavity, ..] = papers_cases(1, 1);
    cavity.steps
}

/// The mean of many runs in virtual time is the sum over the plan, also if saves are written in the
/// background, and for plans whose saves wait for each other or come too late.
#[test]
fn expected_times_come_true() {
    let steps = cavity();
    for commit in [0.0, 3.0, 15.0] {
        let costs = Costs::new(0.6, 1.5, 25.0).unwrap();
        let costs = costs.written_in_background(commit).unwrap();
        for plan in [
            Plan::by(&Rate, &costs, &steps),
            Plan::by(&FixedSteps(3), &costs, &steps),
            Plan::by(&FixedSteps(9), &costs, &steps),
            Plan::best(&costs, &steps),
        ] {
            let rehearsal = Rehearsal {
                steps: &steps,
                costs,
                fast: None,
            };
            let (mean, error) = mean(10_000, 7, |seed| {
                let run = rehearsal.planned(&plan, chance(seed));
                let sum = 214.43 + run.upkeep + run.lost;
                assert!((sum - run.total).abs() < 1e-6, "{run:?}: {sum}");
                run.total
            });
            let expected = plan.expected_time(&costs, &steps);
            assert!(
                (mean - expected).abs() < 4.0 * error,
                "commit {commit}: {mean} ± {error}, expected {expected}"
            );
        }
    }
}

/// An advisor who learns that its saves are written in the background comes as near to the best plan.
#[test]
fn saves_in_the_background_are_learned() {
    for mut case in papers_cases(1, 1) {
        let commit = 0.3 * case.costs.interval();
        case.costs = case.costs.written_in_background(commit).unwrap();
        let (behind, error) = behind_the_best(&case, 1.0, 400, 7);
        assert!(behind < 0.01 + 3.0 * error, "{}: {behind} ± {error}", case.name);
        let (rate, best) = (
            Plan::by(&Rate, &case.costs, &case.steps).expected_time(&case.costs, &case.steps),
            Plan::best(&case.costs, &case.steps).expected_time(&case.costs, &case.steps),
        );
        assert!(rate / best - 1.0 < 1.5e-3, "{}: {rate}, best {best}", case.name);
    }
}

/// An advisor whose guess of the MTBF is wrong by ten loses at most three percent of a run as long as the
/// paper's, and eight tenths of a percent of one ten times as long. `cargo bench` says so of more runs.
#[test]
fn a_wrong_mtbf_is_learned() {
    for (times, runs, most) in [(1, 600, 0.03), (10, 100, 0.008)] {
        for case in papers_cases(times, 1) {
            for wrong_by in [0.1, 0.25, 4.0, 10.0] {
                let (behind, error) = behind_the_best(&case, wrong_by, runs, 7);
                assert!(
                    behind < most + 3.0 * error,
                    "{} x{times}, told {wrong_by} times the MTBF: {behind} ± {error}",
                    case.name
                );
            }
        }
    }
}

/// All time of a run is accounted for: computing, saves and restores, and what was lost.
#[test]
fn all_time_is_accounted_for() {
    let steps = cavity();
    let costs = Costs::new(0.6, 1.5, 25.0).unwrap();
    for (fast, options) in [
        (None, None),
        (
            Some((0.1, 0.8)),
            Some(FastLevel {
                save: 0.1,
                covers: 0.8,
            }),
        ),
    ] {
        let rehearsal = Rehearsal {
            steps: &steps,
            costs,
            fast,
        };
        let options = AdvisorOptions {
            mtbf: Mtbf::Known(25.0),
            save: Some(0.6),
            restore: 1.5,
            fast: options,
            ..AdvisorOptions::default()
        };
        mean(200, 7, |seed| {
            let run = rehearsal.advised(&options, chance(seed));
            let sum = 214.43 + run.upkeep + run.lost;
            // A fast save that is lost later was made all the same.
            assert!((sum - run.total).abs() < 1e-6, "{run:?}: {sum}");
            run.total
        });
    }
}

/// The gain of two levels is what their costs promise, within five points.
#[test]
fn two_levels_gain_what_is_promised() {
    let steps = vec![0.2; 10_000];
    for (mtbf, save, covers) in [
        (25.0, 0.06, 0.95),
        (25.0, 0.1, 0.8),
        (10.0, 0.06, 0.5),
        (10.0, 0.3, 0.8),
    ] {
        let costs = Costs::new(0.6, 0.6, mtbf).unwrap();
        let run = |fast: Option<(f64, f64)>| {
            let rehearsal = Rehearsal {
                steps: &steps,
                costs,
                fast,
            };
            let options = AdvisorOptions {
                mtbf: Mtbf::Known(mtbf),
                save: Some(0.6),
                restore: 0.6,
                fast: fast.map(|(save, covers)| FastLevel { save, covers }),
                ..AdvisorOptions::default()
            };
            let (mean, _) = mean(60, 7, |seed| rehearsal.advised(&options, chance(seed)).total);
            mean / 2000.0 - 1.0
        };
        let (one, two) = (run(None), run(Some((save, covers))));
        let promised = costs.saving_of_fast_level(save, covers);
        let found = 1.0 - two / one;
        assert!(
            (found - promised).abs() < 0.05,
            "promised {promised}, found {found}"
        );
    }
}
