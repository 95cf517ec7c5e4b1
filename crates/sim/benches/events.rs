//! Events per second: 1,000 processes that pass messages on at random. Prints one line; `cargo bench -p ropewalk-sim`.

use std::time::Instant;

use ropewalk_sim::{Dice, Host, Nanos, Network, Process, Simulation};

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
    let took = began.elapsed().as_secs_f64();
    let rate = simulation.events() as f64 / took / 1e6;
    println!(
        "{rate:.1} million events per second ({} in {took:.2} s)",
        simulation.events()
    );
}
