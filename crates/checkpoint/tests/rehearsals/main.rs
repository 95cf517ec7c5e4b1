//! Whole runs in virtual time: what is expected of plans comes true, and what the advisor does not know it learns.

mod learning;

use learning::{behind_the_best, cavity, mean, uniform};
use ropewalk_checkpoint::{AdvisorOptions, Costs, FastLevel, FixedSteps, Mtbf, Plan, Rate, Rehearsal};

/// The mean of many runs in virtual time is what the sum over the plan says.
#[test]
fn expected_times_come_true() {
    let steps = cavity(214.43, 100);
    let costs = Costs::new(0.6, 1.5, 25.0).unwrap();
    for plan in [
        Plan::by(&Rate, &costs, &steps),
        Plan::by(&FixedSteps(9), &costs, &steps),
        Plan::best(&costs, &steps),
    ] {
        let rehearsal = Rehearsal {
            steps: &steps,
            costs,
            fast: None,
        };
        let (mean, error) = mean(20_000, |random| rehearsal.planned(&plan, uniform(random)));
        let expected = plan.expected_time(&costs, &steps);
        assert!(
            (mean - expected).abs() < 4.0 * error,
            "{mean} ± {error}, expected {expected}"
        );
    }
}

/// An advisor who believes in an MTBF that is wrong by four loses at most two percent of a run as long as the paper's, and
/// three tenths of a percent of one ten times as long. `cargo bench` says so of 20,000 runs each.
#[test]
fn a_wrong_mtbf_is_learned() {
    for (length, runs, most) in [(1, 2_000, 0.02), (10, 250, 0.003)] {
        let steps = cavity(214.43 * f64::from(length), 100 * length as usize);
        for mtbf in [25.0, 50.0, 100.0] {
            for wrong in [0.25, 4.0] {
                let (behind, error) = behind_the_best(&steps, 0.6, mtbf, mtbf * wrong, runs);
                assert!(
                    behind < most + 3.0 * error,
                    "length {length}, MTBF {mtbf}, told {wrong} times that: {behind} ± {error}"
                );
            }
        }
    }
}

/// All time of a run is accounted for: computing, saves and restores, and what was lost.
#[test]
fn all_time_is_accounted_for() {
    let steps = cavity(214.43, 100);
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
        mean(200, |random| {
            let run = rehearsal.advised(&options, uniform(random));
            let sum = 214.43 + run.upkeep + run.lost;
            // A fast save that is lost later was made all the same.
            assert!((sum - run.total).abs() < 1e-6, "{run:?}: {sum}");
            run
        });
    }
}

/// The gain of two levels is what their costs promise, within five points.
#[test]
fn two_levels_gain_what_is_promised() {
    let steps = vec![0.2; 10_000];
    for (save, covers) in [(0.06, 0.95), (0.1, 0.8), (0.06, 0.8)] {
        let costs = Costs::new(0.6, 0.6, 25.0).unwrap();
        let run = |fast: Option<(f64, f64)>| {
            let rehearsal = Rehearsal {
                steps: &steps,
                costs,
                fast,
            };
            let options = AdvisorOptions {
                mtbf: Mtbf::Known(25.0),
                save: Some(0.6),
                restore: 0.6,
                fast: fast.map(|(save, covers)| FastLevel { save, covers }),
                ..AdvisorOptions::default()
            };
            let (mean, _) = mean(200, |random| rehearsal.advised(&options, uniform(random)));
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
