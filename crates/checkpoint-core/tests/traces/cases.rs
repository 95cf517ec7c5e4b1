//! Runs like the paper's.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_checkpoint_core::Costs;

/// A run, and what saves and failures cost it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// How long each step takes, in seconds.
    pub(crate) steps: Vec<f64>,
    pub(crate) costs: Costs,
}

/// A number from 0 up to 1.
pub(crate) fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A number with mean 0 and standard deviation 1.
pub(crate) fn normal(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

/// Steps of a shape, with relative noise, that take `total` seconds together.
pub(crate) fn trace(total: f64, steps: usize, noise: f64, seed: u64, shape: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let raw = (0..steps).map(|at| {
        let factor = 1.0 + noise * normal(&mut random);
        shape(at as f64) * factor.max(0.05)
    });
    scaled(raw.collect(), total)
}

/// Steps that take `total` seconds together, and are as long as these beside each other.
pub(crate) fn scaled(mut steps: Vec<f64>, total: f64) -> Vec<f64> {
    let scale = total / steps.iter().sum::<f64>();
    steps.iter_mut().for_each(|step| *step *= scale);
    steps
}

/// The paper's five cases, `times` times as long, with noise of its own for each seed.
pub(crate) fn papers_cases(times: usize, seed: u64) -> [Case; 5] {
    let length = times as f64;
    let case = |name, steps: Vec<f64>, save: f64, mtbf: f64| Case {
        name,
        steps,
        costs: Costs::new(save, save, mtbf).expect("both are positive"),
    };
    let cavity = trace(214.43 * length, 100 * times, 0.03, seed, |at| {
        1.0 + 2.5 * (-at / 6.0).exp()
    });
    let pitz_daily = trace(888.14 * length, 200 * times, 0.03, seed + 1, |_| 1.0);
    let dam_break = trace(167.09 * length, 1000 * times, 0.03, seed + 2, |at| {
        1.0 + 0.3 * (at / 150.0).sin()
    });
    [
        case("Cavity 25", cavity.clone(), 0.60, 25.0),
        case("Cavity 50", cavity.clone(), 0.60, 50.0),
        case("Cavity 100", cavity, 0.60, 100.0),
        case("PitzDaily 100", pitz_daily, 0.85, 100.0),
        case("Dambreak 25", dam_break, 0.27, 25.0),
    ]
}
