//! Events per second: 1,000 processes that pass messages on at random, and the start of 100,000 ranks on 1,000 hosts.
//! Prints a line for each; `cargo bench -p ropewalk-sim`.

use std::time::Instant;

use ropewalk_sim::{
    Dice, Host, Nanos, Network, Process, Simulation,
    launch::{Costs, Setting, run},
};

const HOSTS: u32 = 1_000;
const EVENTS: u64 = 10_000_000;

fn main() {
    let mut dice = Dice::new(1);
    let network = Network::uniform(HOSTS, 1e9, Nanos::from_micros(20));
    let mut simulation = Simulation::new(network, (0..HOSTS).map(Host).collect());
    for process in 0..HOSTS {
        simulation.after(Nanos(dice.below(1_000)), Process(process), process);
    }
    let began = Instant::now();
    while simulation.events() < EVENTS {
        let Some(event) = simulation.next() else { break };
        let to = Process(dice.below(HOSTS.into()) as u32);
        simulation.send(event.process, to, 64 + dice.below(4_096), event.what);
    }
    tell("messages", simulation.events(), began);
    let setting = Setting::start(HOSTS, 100 * HOSTS, 16, Costs::default());
    let began = Instant::now();
    if let Ok(outcome) = run(&setting) {
        tell("a start", outcome.events, began);
    }
}

fn tell(name: &str, events: u64, began: Instant) {
    let took = began.elapsed().as_secs_f64();
    let rate = events as f64 / took / 1e6;
    println!("{name}: {rate:.1} million events per second ({events} in {took:.2} s)");
}
