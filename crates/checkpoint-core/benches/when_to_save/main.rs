//! The tables of "When to save" in `docs/benchmarks_of_checkpoints.md`: `cargo bench -p ropewalk-checkpoint`, with the
//! names of tables as arguments if not all are wanted, and the number of simulated runs.

#[path = "../../tests/traces/cases.rs"]
mod cases;
#[path = "../../tests/no_allocation/counting_allocator.rs"]
mod counting_allocator;
mod decisions;
#[path = "../../tests/traces/families.rs"]
mod families;
#[path = "../../tests/traces/known_rest.rs"]
mod known_rest;
#[path = "../../tests/rehearsals/learning.rs"]
mod learning;
#[path = "../../tests/traces/random.rs"]
mod random;
mod shapes;
mod two_levels;

use std::{env, ops::RangeInclusive};

use cases::{Case, papers_cases};
use counting_allocator::Counting;
use families::{CASES_PER_FAMILY, CHOICE_SEED, FAMILIES, TEST_SEED, case_of_family};
use known_rest::KnownRest;
use learning::behind_the_best;
use rand_core::SeedableRng;
use rand_pcg::Pcg64;
use random::random_case;
use ropewalk_checkpoint_core::{
    Costs, FixedSeconds, FixedSteps, Nearest, Paper, Plan, Policy, Rate, daly_first_order, daly_higher_order,
    optimal_interval, young,
};
use shapes::{SHAPES, case_of};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A table: its name, and what prints it, given the number of runs to simulate.
type Table = (&'static str, fn(u32));

const TABLES: [Table; 10] = [
    ("intervals", intervals),
    ("traces", traces),
    ("random", random_traces),
    ("rest", rest_of_run),
    ("shapes", other_shapes),
    ("families", families),
    ("equal", equal_steps),
    ("wrong-mtbf", wrong_mtbf),
    ("two-levels", two_levels::print),
    ("decisions", decisions::print),
];

fn main() {
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let runs = words.iter().find_map(|word| word.parse().ok()).unwrap_or(20_000);
    let is_wanted = |name: &str| {
        words
            .iter()
            .all(|word| word.parse::<u32>().is_ok() || word == name)
            || words.iter().any(|word| word == name)
    };
    for (name, print) in TABLES.into_iter().filter(|(name, _)| is_wanted(name)) {
        println!("\n{name}\n");
        print(runs);
    }
}

/// The formulas beside each other.
fn intervals(_: u32) {
    println!("| save, s | MTBF, s | equation 5 | Young | Daly, first order | Daly, higher order |");
    println!("|---|---|---|---|---|---|");
    for (save, mtbf) in [
        (0.60, 25.0),
        (0.60, 50.0),
        (0.60, 100.0),
        (0.85, 100.0),
        (0.27, 25.0),
    ] {
        println!(
            "| {save:.2} | {mtbf} | {:.6} | {:.4} | {:.4} | {:.6} |",
            optimal_interval(save, mtbf),
            young(save, mtbf),
            daly_first_order(save, mtbf),
            daly_higher_order(save, mtbf)
        );
    }
}

fn expected(policy: &dyn Policy, case: &Case) -> f64 {
    Plan::by(policy, &case.costs, &case.steps).expected_time(&case.costs, &case.steps)
}

fn best(case: &Case) -> f64 {
    Plan::best(&case.costs, &case.steps).expected_time(&case.costs, &case.steps)
}

fn percent(policy: f64, best: f64) -> f64 {
    (policy / best - 1.0) * 100.0
}

/// The paper's cases under each policy.
fn traces(_: u32) {
    println!("| case | best plan | rate | behind | paper's rule | behind | best fixed count | behind |");
    println!("|---|---|---|---|---|---|---|---|");
    for case in papers_cases(1, 1) {
        let best = best(&case);
        let [rate, paper] = [&Rate as &dyn Policy, &Paper].map(|policy| expected(policy, &case));
        let fixed = (1..=case.steps.len() as u64)
            .map(|count| expected(&FixedSteps(count), &case))
            .fold(f64::INFINITY, f64::min);
        println!(
            "| {} | {best:.2} s | {rate:.2} s | {:.3} % | {paper:.2} s | {:.3} % | {fixed:.2} s | {:.3} % |",
            case.name,
            percent(rate, best),
            percent(paper, best),
            percent(fixed, best)
        );
    }
}

/// Three hundred runs at random under each policy, for some seeds.
fn random_traces(_: u32) {
    const CASES: u32 = 300;
    println!(
        "| seed | rate, mean | rate, most | rate behind the paper's rule, most | paper's rule, mean | nearest, mean |"
    );
    println!("|---|---|---|---|---|---|");
    for seed in [42, 1, 2, 3] {
        let mut random = Pcg64::seed_from_u64(seed);
        let (mut sums, mut most, mut behind) = ([0.0; 3], 0.0f64, f64::NEG_INFINITY);
        for _ in 0..CASES {
            let case = random_case(&mut random);
            let best = best(&case);
            let found =
                [&Rate as &dyn Policy, &Paper, &Nearest].map(|policy| percent(expected(policy, &case), best));
            for (sum, found) in sums.iter_mut().zip(found) {
                *sum += found;
            }
            most = most.max(found[0]);
            behind = behind.max(found[0] - found[1]);
        }
        let [rate, paper, nearest] = sums.map(|sum| sum / f64::from(CASES));
        println!("| {seed} | {rate:.4} % | {most:.3} % | {behind:.3} % | {paper:.3} % | {nearest:.3} % |");
    }
}

/// How often the default is behind the paper's rule in 180 times three hundred runs, as it is and if the time
/// of the rest of each run is known.
fn rest_of_run(_: u32) {
    const SEEDS: u64 = 180;
    const CASES: u64 = 300;
    println!("| rate | mean | most | behind the paper's rule, most | by more than 0.05 % |");
    println!("|---|---|---|---|---|");
    for is_known in [false, true] {
        let (mut sum, mut most, mut behind, mut count) = (0.0, 0.0f64, f64::NEG_INFINITY, 0);
        for seed in 1..=SEEDS {
            let mut random = Pcg64::seed_from_u64(seed);
            for _ in 0..CASES {
                let case = random_case(&mut random);
                let best = best(&case);
                let rate = match is_known {
                    true => expected(&KnownRest::new(&case.steps), &case),
                    false => expected(&Rate, &case),
                };
                let rate = percent(rate, best);
                let over = rate - percent(expected(&Paper, &case), best);
                sum += rate;
                most = most.max(rate);
                behind = behind.max(over);
                count += u32::from(over > 0.05);
            }
        }
        let cases = SEEDS * CASES;
        let name = if is_known { "the rest is known" } else { "as it is" };
        println!(
            "| {name} | {:.4} % | {most:.3} % | {behind:.3} % | {count} of {cases} |",
            sum / cases as f64
        );
    }
}

/// The default and the paper's rule on runs of other shapes.
fn other_shapes(_: u32) {
    const CASES: u32 = 4000;
    println!(
        "| steps | rate, mean | rate, most | behind the paper's rule by more than 0.05 % | paper's rule, mean | most |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, shape) in SHAPES {
        let mut random = Pcg64::seed_from_u64(1);
        let ([mut rates, mut papers], mut behind) = ([(0.0, 0.0f64); 2], 0);
        for _ in 0..CASES {
            let case = case_of(shape, &mut random);
            let best = best(&case);
            let [rate, paper] =
                [&Rate as &dyn Policy, &Paper].map(|policy| percent(expected(policy, &case), best));
            for (sums, found) in [(&mut rates, rate), (&mut papers, paper)] {
                sums.0 += found / f64::from(CASES);
                sums.1 = sums.1.max(found);
            }
            behind += u32::from(rate - paper > 0.05);
        }
        println!(
            "| {name} | {:.4} % | {:.3} % | {behind} of {CASES} | {:.4} % | {:.3} % |",
            rates.0, rates.1, papers.0, papers.1
        );
    }
}

/// Each policy on 1,050 runs beyond the family that the rule was made for, with the seeds by which the
/// forecast was chosen and with those by which it is judged.
fn families(_: u32) {
    for (name, seed) in [("choice", CHOICE_SEED), ("test", TEST_SEED)] {
        type Timed = (&'static str, fn(&Case) -> f64);
        let policies: [Timed; 3] = [
            ("rate", |case| expected(&Rate, case)),
            ("paper's rule", |case| expected(&Paper, case)),
            ("best threshold in hindsight", best_threshold),
        ];
        println!("Seeds of the {name}; behind the best plan, mean and most:\n");
        println!("| steps | {} |", policies.map(|(policy, _)| policy).join(" | "));
        println!("|---|---|---|---|");
        let mut all = [(0.0, 0.0f64); 3];
        for (at, (family, kind)) in (0..).zip(FAMILIES) {
            let mut random = Pcg64::seed_from_u64(seed + at);
            let mut found = [(0.0, 0.0f64); 3];
            for _ in 0..CASES_PER_FAMILY {
                let case = case_of_family(kind, &mut random);
                let best = best(&case);
                for ((sum, most), (_, time)) in found.iter_mut().zip(policies) {
                    let behind = percent(time(&case), best);
                    *sum += behind / CASES_PER_FAMILY as f64;
                    *most = most.max(behind);
                }
            }
            print_row(family, &found);
            for (all, found) in all.iter_mut().zip(found) {
                *all = (all.0 + found.0 / FAMILIES.len() as f64, all.1.max(found.1));
            }
        }
        print_row("all", &all);
        println!();
    }
}

fn print_row(name: &str, found: &[(f64, f64)]) {
    let columns = found
        .iter()
        .map(|(mean, most)| format!("{mean:.3} %, {most:.2} %"));
    println!("| {name} | {} |", columns.collect::<Vec<_>>().join(" | "));
}

/// The expected time with the best of thresholds from half an interval to two, which one knows only afterwards.
fn best_threshold(case: &Case) -> f64 {
    (20..=80)
        .map(|part| {
            expected(
                &FixedSeconds(case.costs.interval() * f64::from(part) / 40.0),
                case,
            )
        })
        .fold(f64::INFINITY, f64::min)
}

/// Steps of equal length, from a fortieth of the interval to one and a half of it.
fn equal_steps(_: u32) {
    const PARTS: RangeInclusive<u32> = 1..=60;
    println!("| policy | behind the best, mean | most |");
    println!("|---|---|---|");
    let costs = Costs::new(0.6, 0.6, 25.0).expect("all are positive");
    for (name, policy) in [
        ("rate", &Rate as &dyn Policy),
        ("paper's rule", &Paper),
        ("nearest", &Nearest),
    ] {
        let behind: Vec<f64> = PARTS
            .map(|part| {
                let case = Case {
                    name,
                    steps: vec![costs.interval() * f64::from(part) / 40.0; 20_000],
                    costs,
                };
                percent(expected(policy, &case), best(&case))
            })
            .collect();
        println!(
            "| {name} | {:.4} % | {:.4} % |",
            behind.iter().sum::<f64>() / behind.len() as f64,
            behind.iter().copied().fold(0.0, f64::max)
        );
    }
}

/// The cost of a wrong MTBF, on the paper's cases and on runs ten times as long, for some seeds.
fn wrong_mtbf(runs: u32) {
    println!("{runs} runs for each figure; longer than the best plan by, and the standard error:\n");
    println!(
        "| case | seed | told a tenth | told a quarter | told the truth | told four times | told ten times |"
    );
    println!("|---|---|---|---|---|---|---|");
    for times in [1, 10] {
        for seed in [1, 2, 3] {
            for case in papers_cases(times, 10 * seed) {
                let columns: Vec<String> = [0.1, 0.25, 1.0, 4.0, 10.0]
                    .into_iter()
                    .map(|wrong_by| {
                        let (behind, error) = behind_the_best(&case, wrong_by, runs, seed);
                        format!("{:.3} ± {:.3} %", behind * 100.0, error * 100.0)
                    })
                    .collect();
                println!("| {} x{times} | {seed} | {} |", case.name, columns.join(" | "));
            }
        }
    }
}
