//! Reductions of many hosts in virtual time: how long one is in multiples of the floor, and how long it takes to
//! simulate. `cargo bench -p ropewalk-sim --bench large -- 1000 10000x8` simulates 1,000 hosts with 128 MiB, and 10,000
//! hosts with 8 MiB; `allreduce` before them gives the result to all.
//!
//! Links of 400 Mbit/s and 50 microseconds, undisturbed. The floor is that of [`Setting::floor`].

use std::{env, time::Instant};

use ropewalk_sim::reduction::{Setting, run};

const MIB: u64 = 1 << 20;
const HOSTS: [&str; 5] = ["200", "1000", "2000", "5000", "10000"];

fn main() {
    let mut given: Vec<String> = env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let is_spread = given.first().is_some_and(|word| word == "allreduce");
    if is_spread {
        given.remove(0);
    }
    if given.is_empty() {
        given.extend(HOSTS.map(str::to_owned));
    }
    println!(
        "{:>6} {:>5} {:>8} {:>9} {:>12} {:>8} {:>9}",
        "hosts", "MiB", "x floor", "messages", "events", "seconds", "events/s"
    );
    for word in given {
        let (hosts, mib) = word.split_once('x').unwrap_or((&word, "128"));
        let (Ok(hosts), Ok(mib)) = (hosts.parse(), mib.parse::<f64>()) else {
            eprintln!("expected HOSTS or HOSTSxMIB, such as 1000x8, not {word}");
            std::process::exit(2);
        };
        let mut setting = Setting::new(hosts, (mib * MIB as f64) as u64);
        setting.calls.is_spread = is_spread;
        row(&setting);
    }
}

fn row(setting: &Setting) {
    let began = Instant::now();
    match run(setting) {
        Ok(outcome) => {
            let factor = outcome.time.as_seconds() / setting.floor().as_seconds();
            let messages = outcome.messages_to_scheduler + outcome.messages_from_scheduler;
            let took = began.elapsed().as_secs_f64();
            let rate = outcome.events as f64 / took;
            println!(
                "{:>6} {:>5} {factor:>8.3} {messages:>9} {:>12} {took:>8.1} {rate:>9.1e}",
                setting.hosts,
                setting.calls.bytes as f64 / MIB as f64,
                outcome.events
            );
        }
        Err(violation) => println!("{:>6} {violation:?}", setting.hosts),
    }
}
