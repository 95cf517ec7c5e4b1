//! Streaming reductions in virtual time, in multiples of the floor. `cargo bench -p ropewalk-sim --bench reduction`
//!
//! Links of 400 Mbit/s and 50 microseconds. The floor is that of [`Setting::floor`], with what is slow taken into
//! account.

use std::time::Instant;

use ropewalk_reduce_core::{End, Order};
use ropewalk_sim::{
    Nanos,
    reduction::{Fault, Setting, Slow, run},
};

const MIB: u64 = 1 << 20;

fn main() {
    println!(
        "{:32} {:>5} {:>5} {:>8} {:>8} {:>10}",
        "", "hosts", "MiB", "x floor", "messages", "events/s"
    );
    for (hosts, mib) in [
        (8, 1),
        (8, 8),
        (16, 4),
        (16, 8),
        (64, 32),
        (200, 128),
        (1_000, 128),
    ] {
        row("undisturbed", &Setting::new(hosts, mib * MIB));
    }
    for (hosts, mib, root) in [(8, 8, 0), (8, 8, 3), (16, 8, 0), (64, 32, 0)] {
        let mut setting = Setting::new(hosts, mib * MIB);
        (setting.calls.order, setting.calls.root) = (Order::Ordered, root);
        row(&format!("ordered, root {root}"), &setting);
    }
    for (name, hosts, [outwards, inwards, folding]) in [
        ("one host, both links at 1/10", 3..4, [0.1, 0.1, 1.0]),
        ("one host, link in at 1/10", 3..4, [1.0, 0.1, 1.0]),
        ("four hosts, both links at 1/2", 1..5, [0.5, 0.5, 1.0]),
        ("four hosts, links in at 1/2", 1..5, [1.0, 0.5, 1.0]),
        ("one host, processor at 1/200", 3..4, [1.0, 1.0, 0.005]),
    ] {
        let mut setting = Setting::new(8, 4 * MIB);
        let slow = |host| Slow {
            host,
            outwards,
            inwards,
            folding,
            is_known: true,
        };
        setting.cluster.slow = hosts.map(slow).collect();
        row(name, &setting);
    }
    let mut setting = Setting::new(8, 32 * MIB);
    let half = Nanos(setting.floor().0 / 2);
    setting.faults = vec![(half, Fault::KillRank(4))];
    row("a rank killed in the middle", &setting);
    setting.faults = vec![(half, Fault::KillRank(4)), (half, Fault::KillRank(5))];
    row("two ranks killed", &setting);
}

fn row(name: &str, setting: &Setting) {
    let began = Instant::now();
    match run(setting) {
        Ok(outcome) if matches!(outcome.end, Some(End::Done { .. })) => {
            let factor = outcome.time.as_seconds() / setting.floor().as_seconds();
            let messages = outcome.messages_to_scheduler + outcome.messages_from_scheduler;
            let rate = outcome.events as f64 / began.elapsed().as_secs_f64();
            let mib = setting.calls.bytes / MIB;
            println!(
                "{name:32} {:>5} {mib:>5} {factor:>8.3} {messages:>8} {rate:>10.1e}",
                setting.hosts
            );
        }
        outcome => println!("{name:32} {outcome:?}"),
    }
}
