//! What it costs to be told a wrong mean time between failures.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_checkpoint::{AdvisorOptions, Costs, Mtbf, Plan, Rehearsal, Rehearsed};

/// Numbers from 0 up to 1.
pub(crate) fn uniform(random: &mut Pcg64) -> impl FnMut() -> f64 + '_ {
    || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The mean of the total over some runs, and its standard error.
pub(crate) fn mean(runs: u32, mut run: impl FnMut(&mut Pcg64) -> Rehearsed) -> (f64, f64) {
    let mut random = Pcg64::seed_from_u64(7);
    let totals: Vec<f64> = (0..runs).map(|_| run(&mut random).total).collect();
    let mean = totals.iter().sum::<f64>() / f64::from(runs);
    let variance = totals.iter().map(|total| (total - mean).powi(2)).sum::<f64>() / f64::from(runs - 1);
    (mean, (variance / f64::from(runs)).sqrt())
}

/// Like the paper's cavity: a slow start, then equal steps, and three percent of noise.
pub(crate) fn cavity(total: f64, steps: usize) -> Vec<f64> {
    let mut random = Pcg64::seed_from_u64(1);
    let mut uniform = uniform(&mut random);
    let raw: Vec<f64> = (0..steps)
        .map(|at| (1.0 + 2.5 * (-(at as f64) / 6.0).exp()) * (0.95 + 0.1 * uniform()))
        .collect();
    let scale = total / raw.iter().sum::<f64>();
    raw.iter().map(|step| step * scale).collect()
}

/// By how much runs with an advisor take longer than the best plan for what is true, and the standard error of that.
pub(crate) fn behind_the_best(steps: &[f64], save: f64, mtbf: f64, prior: f64, runs: u32) -> (f64, f64) {
    let costs = Costs::new(save, save, mtbf).expect("both are positive");
    let best = Plan::best(&costs, steps).expected_time(&costs, steps);
    let rehearsal = Rehearsal {
        steps,
        costs,
        fast: None,
    };
    let options = AdvisorOptions {
        mtbf: Mtbf::Learned(prior),
        save: Some(save),
        restore: save,
        steps: Some(steps.len() as u64),
        ..AdvisorOptions::default()
    };
    let (mean, error) = mean(runs, |random| rehearsal.advised(&options, uniform(random)));
    (mean / best - 1.0, error / best)
}
