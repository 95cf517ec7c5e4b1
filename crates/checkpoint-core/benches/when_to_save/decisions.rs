//! The cost of a decision.

use std::{hint::black_box, time::Instant};

use ropewalk_checkpoint_core::{
    Advisor, AdvisorOptions, Costs, FastLevel, History, Moment, Mtbf, Policy, Rate,
};

use crate::counting_allocator::allocations;

/// Time and allocations of decisions, beside those of nothing and of a look at the clock.
pub(crate) fn print(_: u32) {
    println!("| what | ns | allocations |");
    println!("|---|---|---|");
    let row = |name: &str, (nanoseconds, allocations): (f64, u64)| {
        println!("| {name} | {nanoseconds:.1} | {allocations} |");
    };
    row("an empty loop", timed(|_| ()));
    row(
        "a look at the clock",
        timed(|_| {
            black_box(Instant::now());
        }),
    );
    let fast = Some(FastLevel {
        save: 0.1,
        covers: 0.9,
    });
    for (name, steps, fast) in [
        ("end of a step, one level", None, None),
        ("the same, the number of steps is known", Some(1 << 40), None),
        ("the same, two levels", None, fast),
    ] {
        let options = AdvisorOptions {
            steps,
            fast,
            save: Some(1.0),
            mtbf: Mtbf::Known(1e6),
            ..AdvisorOptions::default()
        };
        let mut advisor = Advisor::new(&options, &History::default(), 0.0);
        // Too short to save before the round is over: nearly all decisions of a run are of this kind.
        let mut now = 0.0;
        row(
            name,
            timed(|_| {
                now += 1e-6;
                black_box(advisor.step_end(black_box(now)));
            }),
        );
    }
    let costs = Costs::new(0.6, 0.6, 25.0).expect("all are positive");
    for (name, remaining) in [
        ("the rate rule, near the interval", None),
        ("the same, the rest of the run is known", Some(100.0)),
        ("the same, near the end of a run of long steps", Some(20.0)),
    ] {
        row(
            name,
            timed(|at| {
                let moment = Moment {
                    elapsed: costs.interval() - 0.5 + 1e-9 * f64::from(at),
                    next_step: 1.0,
                    steps: 5,
                    remaining,
                    equal_steps: false,
                };
                black_box(Rate.decide(&costs, black_box(&moment)));
            }),
        );
    }
}

/// Nanoseconds of one turn, the least of some rounds, and how often all turns allocate.
fn timed(mut turn: impl FnMut(u32)) -> (f64, u64) {
    const TURNS: u32 = 1_000_000;
    let before = allocations();
    let mut round = || {
        let start = Instant::now();
        for at in 0..TURNS {
            turn(black_box(at));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
    };
    let least = (0..10).map(|_| round()).fold(f64::INFINITY, f64::min);
    (least, allocations() - before)
}
