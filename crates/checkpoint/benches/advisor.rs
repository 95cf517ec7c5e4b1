//! What a decision costs, and what it costs to be told a wrong mean time between failures:
//! `cargo bench -p ropewalk-checkpoint`, with the number of simulated runs as an argument.

#[path = "../tests/rehearsals/learning.rs"]
mod learning;

use std::{env, hint::black_box, time::Instant};

use learning::{behind_the_best, cavity};
use ropewalk_checkpoint::{Advisor, AdvisorOptions, FastLevel, History};

fn main() {
    let runs = env::args()
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(20_000);
    println!("one decision, without the clock:");
    let fast = Some(FastLevel {
        save: 0.1,
        covers: 0.9,
    });
    for (name, steps, fast) in [
        ("one level", None, None),
        ("one level, the end is known", Some(1 << 40), None),
        ("two levels", None, fast),
    ] {
        let options = AdvisorOptions {
            steps,
            fast,
            save: Some(1.0),
            ..AdvisorOptions::default()
        };
        println!("  {name:<30} {:6.1} ns", decision(&options));
    }
    println!("{runs} runs each, longer than the best plan by:");
    println!("  length    MTBF   told MTBF    longer   standard error");
    for length in [1, 10] {
        let steps = cavity(214.43 * f64::from(length), 100 * length as usize);
        for mtbf in [25.0, 50.0, 100.0] {
            for wrong in [0.25, 1.0, 4.0] {
                let (behind, error) = behind_the_best(&steps, 0.6, mtbf, mtbf * wrong, runs);
                let (behind, error) = (behind * 100.0, error * 100.0);
                println!(
                    "  x{length:<6} {mtbf:6} s {:9} s {behind:8.3} % {error:8.3} %",
                    mtbf * wrong
                );
            }
        }
    }
}

/// Nanoseconds of one decision: the least of some rounds.
fn decision(options: &AdvisorOptions) -> f64 {
    const STEPS: u32 = 1_000_000;
    let round = || {
        let mut advisor = Advisor::new(options, &History::default(), 0.0);
        let start = Instant::now();
        for step in 0..STEPS {
            // Too short to save before the round is over, so that all decisions are of the usual kind.
            black_box(advisor.step_end(black_box(f64::from(step) * 1e-6)));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(STEPS)
    };
    (0..10).map(|_| round()).fold(f64::INFINITY, f64::min)
}
