//! An advisor is a guest in somebody's time loop: it allocates nothing there.

mod counting_allocator;

use counting_allocator::{Counting, allocations};
use ropewalk_checkpoint_core::{Advisor, AdvisorOptions, FastLevel, History};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A run of many steps, saves and failures, with everything that an advisor can be told, allocates nothing.
#[test]
fn no_call_of_the_advisor_allocates() {
    let options = AdvisorOptions {
        limit: Some(1e6),
        steps: Some(100_000),
        fast: Some(FastLevel {
            save: 0.1,
            covers: 0.9,
        }),
        ..AdvisorOptions::default()
    };
    let mut advisor = Advisor::new(&options, &History::default(), 0.0);
    let before = allocations();
    let mut now = 0.0;
    let mut saves = 0;
    for step in 1..=100_000_u64 {
        now += if step % 10 == 0 { 5.0 } else { 1.0 };
        let advice = advisor.step_end(now);
        if advice.decision.save {
            saves += 1;
            advisor.save_begin(advice.level, now);
            now += 0.2;
            advisor.save_end(advice.level, now);
        }
        if step % 1000 == 0 {
            advisor.failed(now);
            now += 1.0;
            advisor.restored(now);
        }
    }
    advisor.preempt(30.0, now);
    advisor.step_end(now + 1.0);
    assert_eq!(allocations() - before, 0);
    assert!(saves > 100, "{saves}");
    // The counter counts.
    let boxed = Box::new(now);
    assert!(allocations() > before && *boxed > 0.0);
}
