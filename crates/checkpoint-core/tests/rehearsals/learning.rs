//! The cost of a wrong guess of the mean time between failures.

use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use ropewalk_checkpoint_core::{AdvisorOptions, Mtbf, Plan, Rehearsal, Rehearsed};

use crate::cases::{Case, uniform};

/// The mean of some numbers, one for each run with a chance of its own, and its standard error.
pub(crate) fn mean(runs: u32, seed: u64, mut run: impl FnMut(u64) -> f64) -> (f64, f64) {
    let first = seed << 32;
    let numbers: Vec<f64> = (0..runs).map(|at| run(first + u64::from(at))).collect();
    let mean = numbers.iter().sum::<f64>() / f64::from(runs);
    let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / f64::from(runs - 1);
    (mean, (variance / f64::from(runs)).sqrt())
}

/// The numbers from 0 up to 1 that a run meets: the same for the same seed.
pub(crate) fn chance(seed: u64) -> impl FnMut() -> f64 {
    let mut random = Pcg64::seed_from_u64(seed);
    move || uniform(&mut random)
}

/// By how much runs with an advisor take longer than the best plan for what is true, and the standard error of that.
///
/// Both meet the same failures, so that what is left to chance is the difference between them.
pub(crate) fn behind_the_best(case: &Case, wrong_by: f64, runs: u32, seed: u64) -> (f64, f64) {
    let Case { steps, costs, .. } = case;
    let best = Plan::best(costs, steps);
    let rehearsal = Rehearsal {
        steps,
        costs: *costs,
        fast: None,
    };
    let options = AdvisorOptions {
        mtbf: Mtbf::Learned(costs.mtbf() * wrong_by),
        save: Some(costs.save()),
        restore: costs.restore(),
        steps: Some(steps.len() as u64),
        ..AdvisorOptions::default()
    };
    let total = |run: Rehearsed| run.total;
    let (mean, error) = mean(runs, seed, |seed| {
        total(rehearsal.advised(&options, chance(seed))) - total(rehearsal.planned(&best, chance(seed)))
    });
    let expected = best.expected_time(costs, steps);
    (mean / expected, error / expected)
}
