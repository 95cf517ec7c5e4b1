//! How long the start of a large job takes, in virtual time.

use std::time::Duration;

use ropewalk_launch::{StartCosts, simulate_start};

/// What is started.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many hosts
    #[arg(long, default_value_t = 1000)]
    hosts: u32,
    /// How many ranks on each
    #[arg(long, default_value_t = 100)]
    ranks_per_host: u32,
}

/// Prints a table for trees of several arities, the last of which is a star.
pub(crate) fn simulate(options: &Options) {
    let costs = StartCosts {
        // Assumed, not measured: what fork and exec of ssh cost, how long a login takes, what a rank's start costs, and
        // a message between endpoints. The order of magnitude is what matters for the shape of the tree.
        start_agent: Duration::from_millis(1),
        login: Duration::from_millis(150),
        start_rank: Duration::from_micros(400),
        latency: Duration::from_micros(50),
        message: Duration::from_micros(20),
        report: Duration::from_nanos(300),
    };
    println!("| arity | last agent, s | last rank, s | known to the launcher, s |");
    println!("|---|---|---|---|");
    for arity in [2, 4, 8, 16, 32, 64, 128, options.hosts] {
        let times = simulate_start(options.hosts, options.ranks_per_host, arity, &costs);
        let name = if arity == options.hosts {
            "star".to_owned()
        } else {
            arity.to_string()
        };
        let [agents, ranks, known] = [times.agents, times.ranks, times.known].map(|time| time.as_secs_f64());
        println!("| {name} | {agents:.3} | {ranks:.3} | {known:.3} |");
    }
}
