//! Policies on whole runs, beside the best plan that one could have made had one known the steps beforehand.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_checkpoint::{Costs, FixedSteps, Nearest, Paper, Plan, Policy, Rate};

/// A number from 0 up to 1.
fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A number with mean 0 and standard deviation 1.
fn normal(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

/// Steps of a shape, with relative noise, that take `total` seconds together.
fn trace(total: f64, steps: usize, noise: f64, seed: u64, shape: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let raw = (0..steps).map(|at| {
        let factor = 1.0 + noise * normal(&mut random);
        shape(at as f64) * factor.max(0.05)
    });
    let raw: Vec<f64> = raw.collect();
    let scale = total / raw.iter().sum::<f64>();
    raw.iter().map(|step| step * scale).collect()
}

fn expected(policy: &dyn Policy, costs: &Costs, steps: &[f64]) -> f64 {
    Plan::by(policy, costs, steps).expected_time(costs, steps)
}

fn best(costs: &Costs, steps: &[f64]) -> f64 {
    Plan::best(costs, steps).expected_time(costs, steps)
}

/// The paper's cases: (steps, save, MTBF, expected time of the best plan, of the paper's rule, and of the best fixed
/// number of steps).
fn cases() -> Vec<(Vec<f64>, f64, f64, [f64; 3])> {
    let cavity = trace(214.43, 100, 0.03, 1, |at| 1.0 + 2.5 * (-at / 6.0).exp());
    let pitz_daily = trace(888.14, 200, 0.03, 2, |_| 1.0);
    let dam_break = trace(167.09, 1000, 0.03, 3, |at| 1.0 + 0.3 * (at / 150.0).sin());
    vec![
        (cavity.clone(), 0.60, 25.0, [275.40, 277.76, 279.45]),
        (cavity.clone(), 0.60, 50.0, [253.87, 254.99, 256.94]),
        (cavity, 0.60, 100.0, [240.58, 241.02, 242.40]),
        (pitz_daily, 0.85, 100.0, [1023.20, 1026.89, 1024.51]),
        (dam_break, 0.27, 25.0, [196.05, 196.07, 196.59]),
    ]
}

/// On traces like the paper's, the figures that were found before come out, and the default rule is next to the best.
#[test]
fn the_papers_cases_come_out() {
    for (steps, save, mtbf, [oracle, paper, _]) in cases() {
        let costs = Costs::new(save, save, mtbf).unwrap();
        let (found, rate) = (best(&costs, &steps), expected(&Rate, &costs, &steps));
        let papers = expected(&Paper, &costs, &steps);
        let fixed = (1..=steps.len() as u64).map(|count| expected(&FixedSteps(count), &costs, &steps));
        let fixed = fixed.fold(f64::INFINITY, f64::min);
        assert!(
            (found / oracle - 1.0).abs() < 2e-3,
            "oracle {found}, not {oracle}"
        );
        assert!((papers / paper - 1.0).abs() < 4e-3, "paper {papers}, not {paper}");
        assert!(rate / found - 1.0 < 1.5e-3, "rate {rate}, best {found}");
        assert!(
            rate < fixed * 1.0005 && found < fixed,
            "fixed {fixed}, rate {rate}"
        );
    }
}

/// Steps of equal length are saved as well as can be, where the paper's rule loses several percent.
#[test]
fn steps_of_equal_length_are_saved_at_the_best_moments() {
    let mut worst_of_paper: f64 = 0.0;
    for part in 1..60 {
        let costs = Costs::new(0.6, 0.6, 25.0).unwrap();
        let step = costs.interval() * f64::from(part) / 40.0;
        let steps = vec![step; 20_000];
        let best = best(&costs, &steps);
        let rate = expected(&Rate, &costs, &steps) / best - 1.0;
        assert!(rate < 1e-4, "steps of {step}: {rate} more than the best");
        worst_of_paper = worst_of_paper.max(expected(&Paper, &costs, &steps) / best - 1.0);
    }
    assert!((0.026..0.06).contains(&worst_of_paper), "{worst_of_paper}");
}

/// A trace as some program might have it.
fn random_trace(random: &mut Pcg64) -> (Vec<f64>, Costs) {
    let count = 50 + (uniform(random) * 950.0) as usize;
    let total = 100.0 + uniform(random) * 900.0;
    let (noise, strength, length) = (
        0.05 * uniform(random),
        uniform(random),
        5.0 + 200.0 * uniform(random),
    );
    let (kind, seed) = (random.next_u32() % 4, random.next_u64());
    let steps = trace(total, count, noise, seed, |at| match kind {
        0 => 1.0,
        1 => 1.0 + 2.5 * strength * (-at / length).exp(),
        2 => 1.0 + strength * at / count as f64,
        _ => 1.0 + 0.5 * strength * (at / length).sin(),
    });
    let mtbf = total * (0.1 + 0.4 * uniform(random));
    let save = mtbf * (0.002 + 0.03 * uniform(random));
    let costs = Costs::new(save, save, mtbf).expect("both are positive");
    (steps, costs)
}

/// On many kinds of runs the default is near the best, and never much worse than the paper's rule.
#[test]
fn the_default_is_near_the_best_on_random_traces() {
    let mut random = Pcg64::seed_from_u64(42);
    let (mut sum, mut most, mut behind) = (0.0, 0.0f64, f64::NEG_INFINITY);
    let (mut papers, mut nearest) = (0.0, 0.0);
    const TRACES: usize = 300;
    for _ in 0..TRACES {
        let (steps, costs) = random_trace(&mut random);
        let best = best(&costs, &steps);
        let rate = expected(&Rate, &costs, &steps) / best - 1.0;
        let paper = expected(&Paper, &costs, &steps) / best - 1.0;
        assert!(
            rate > -1e-9 && paper > -1e-9,
            "no policy is better than the best plan"
        );
        sum += rate;
        papers += paper;
        nearest += expected(&Nearest, &costs, &steps) / best - 1.0;
        most = most.max(rate);
        behind = behind.max(rate - paper);
    }
    let [mean, papers, nearest] = [sum, papers, nearest].map(|sum| sum / TRACES as f64);
    assert!(mean < 4e-4, "{mean} on average");
    assert!(most < 6e-3, "{most} at most");
    assert!(behind < 5e-4, "{behind} worse than the paper's rule");
    assert!(
        mean < papers / 10.0 && mean < nearest / 10.0,
        "{mean}, {papers}, {nearest}"
    );
}
