//! Policies on whole runs, beside the best plan that one could have made had one known the steps beforehand.

mod cases;
mod families;
mod known_rest;
mod random;

use cases::papers_cases;
use families::{CASES_PER_FAMILY, CHOICE_SEED, FAMILIES, TEST_SEED, case_of_family};
use known_rest::KnownRest;
use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use random::random_case;
use ropewalk_checkpoint_core::{Costs, FixedSteps, Nearest, Paper, Plan, Policy, Rate};

fn expected(policy: &dyn Policy, costs: &Costs, steps: &[f64]) -> f64 {
    Plan::by(policy, costs, steps).expected_time(costs, steps)
}

fn best(costs: &Costs, steps: &[f64]) -> f64 {
    Plan::best(costs, steps).expected_time(costs, steps)
}

/// For each of the paper's cases, the expected time of the best plan, of the paper's rule, and of the best
/// fixed number of steps, as found before for other noise.
const FOUND_BEFORE: [[f64; 3]; 5] = [
    [275.40, 277.76, 279.45],
    [253.87, 254.99, 256.94],
    [240.58, 241.02, 242.40],
    [1023.20, 1026.89, 1024.51],
    [196.05, 196.07, 196.59],
];

/// On traces like the paper's, the figures that were found before come out, and the default rule is next to the best.
#[test]
fn the_papers_cases_come_out() {
    for (case, [oracle, paper, _]) in papers_cases(1, 1).into_iter().zip(FOUND_BEFORE) {
        let (steps, costs) = (case.steps, case.costs);
        let (found, rate) = (best(&costs, &steps), expected(&Rate, &costs, &steps));
        let papers = expected(&Paper, &costs, &steps);
        let fixed = (1..=steps.len() as u64).map(|count| expected(&FixedSteps(count), &costs, &steps));
        let fixed = fixed.fold(f64::INFINITY, f64::min);
        assert!(
            (found / oracle - 1.0).abs() < 2e-3,
            "oracle {found}, not {oracle}"
        );
        assert!((papers / paper - 1.0).abs() < 4e-3, "paper {papers}, not {paper}");
        assert!(
            rate / found - 1.0 < 1.5e-3,
            "{}: rate {rate}, best {found}",
            case.name
        );
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

/// How a policy did on some runs, by which part each took longer than the best plan.
#[derive(Debug, Default)]
struct Behind {
    sum: f64,
    most: f64,
    /// By how much the worst was worse than the paper's rule, and how many were by more than [`TOLERATED`].
    paper: f64,
    worse: usize,
}

impl Behind {
    fn add(&mut self, behind: f64, paper: f64) {
        assert!(behind > -1e-9, "no policy is better than the best plan");
        self.sum += behind;
        self.most = self.most.max(behind);
        self.paper = self.paper.max(behind - paper);
        self.worse += usize::from(behind - paper > TOLERATED);
    }
}

const TOLERATED: f64 = 5e-4;

/// On many kinds of runs the default is near the best, and next to never worse than the paper's rule.
#[test]
fn the_default_is_near_the_best_on_random_traces() {
    const TRACES: usize = 300;
    const SEEDS: [u64; 6] = [42, 1, 2, 3, 4, 5];
    let [mut rates, mut known] = [(); 2].map(|()| Behind::default());
    for seed in SEEDS {
        let mut random = Pcg64::seed_from_u64(seed);
        let (mut papers, mut nearest, before) = (0.0, 0.0, rates.sum);
        for _ in 0..TRACES {
            let case = random_case(&mut random);
            let (steps, costs) = (case.steps, case.costs);
            let best = best(&costs, &steps);
            let behind = |policy: &dyn Policy| expected(policy, &costs, &steps) / best - 1.0;
            let paper = behind(&Paper);
            papers += paper;
            nearest += behind(&Nearest);
            rates.add(behind(&Rate), paper);
            known.add(behind(&KnownRest::new(&steps)), paper);
        }
        let [mean, papers, nearest] = [rates.sum - before, papers, nearest].map(|sum| sum / TRACES as f64);
        assert!(mean < 4e-4, "{mean} on average with seed {seed}");
        assert!(
            mean < papers / 10.0 && mean < nearest / 10.0,
            "{mean}, {papers}, {nearest}"
        );
    }
    let all = TRACES * SEEDS.len();
    assert!(rates.most < 6e-3, "{rates:?}");
    assert!(rates.worse <= all / 100, "{rates:?}");
    assert!(known.sum / (all as f64) < 4e-5, "{known:?}");
    assert!(known.paper < 1.5e-3 && known.worse <= all / 1000, "{known:?}");
}

/// On families of runs that no rule was made for, the default loses less than 0.08 % on average, and less
/// than 2 % unless a single step of two intervals and more comes unforeseen.
#[test]
fn the_default_is_near_the_best_beyond_its_family() {
    for seed in [CHOICE_SEED, TEST_SEED] {
        let mut sum = 0.0;
        for (at, (family, kind)) in (0..).zip(FAMILIES) {
            let mut random = Pcg64::seed_from_u64(seed + at);
            for _ in 0..CASES_PER_FAMILY {
                let case = case_of_family(kind, &mut random);
                let behind = expected(&Rate, &case.costs, &case.steps) / best(&case.costs, &case.steps) - 1.0;
                let longest = case.steps.iter().copied().fold(0.0, f64::max);
                let most = if longest < 2.0 * case.costs.interval() {
                    0.02
                } else {
                    0.035
                };
                assert!(behind < most, "{family}: {behind}, longest step {longest}");
                sum += behind;
            }
        }
        let mean = sum / (CASES_PER_FAMILY * FAMILIES.len() as u64) as f64;
        assert!(mean < 8e-4, "{mean} on average with seed {seed}");
    }
}
