//! Reductions of many hosts in virtual time: how long one is in multiples of the floor, and how long it takes to
//! simulate. `cargo bench -p ropewalk-sim --bench large -- 1000 10000` simulates these numbers of hosts.
//!
//! 128 MiB, links of 400 Mbit/s and 50 microseconds, undisturbed. The floor is that of [`Setting::floor`].

use std::{env, time::Instant};

use ropewalk_sim::reduction::{Setting, run};

const BYTES: u64 = 128 << 20;
const HOSTS: [u32; 5] = [200, 1_000, 2_000, 5_000, 10_000];

fn main() {
    let given = env::args().filter_map(|argument| argument.parse::<u32>().ok());
    let mut hosts: Vec<u32> = given.collect();
    if hosts.is_empty() {
        hosts.extend(HOSTS);
    }
    println!(
        "{:>6} {:>8} {:>9} {:>12} {:>8} {:>9}",
        "hosts", "x floor", "messages", "events", "seconds", "events/s"
    );
    for hosts in hosts {
        row(&Setting::new(hosts, BYTES));
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
                "{:>6} {factor:>8.3} {messages:>9} {:>12} {took:>8.1} {rate:>9.1e}",
                setting.hosts, outcome.events
            );
        }
        Err(violation) => println!("{:>6} {violation:?}", setting.hosts),
    }
}
