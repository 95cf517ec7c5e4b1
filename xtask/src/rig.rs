//! The hosts of `ropewalk-rig` by command, and the times of collectives on them.

mod bench;
mod interference;
mod rivals;

use std::time::Duration;

use ropewalk_rig::{Direction, Flow, Network};

pub(crate) use self::bench::job;

/// Hosts of this machine's own.
#[derive(clap::Subcommand)]
pub(crate) enum Task {
    /// Makes hosts, and says how to run a job on them; they stay until `down`
    Up(Size),
    /// Removes the hosts of `up`, and those that a killed command left
    Down,
    /// Changes the rate of a host of `up`
    Rate {
        /// The number of the host, from 1
        #[arg(long)]
        host: u8,
        /// Its new rate in megabits a second
        #[arg(long)]
        mbit: u32,
    },
    /// Sends as fast as a connection goes from one host of `up` to another, until it is interrupted
    Flow {
        /// The number of the sender, from 1
        #[arg(long)]
        from: u8,
        /// The number of the receiver
        #[arg(long)]
        to: u8,
    },
    /// Times a collective, in multiples of what the links allow
    Bench(bench::Options),
}

/// How many hosts, and how fast.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Size {
    /// How many hosts
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=64))]
    hosts: u8,
    /// Megabits a second of each host, in each direction
    #[arg(long, default_value_t = 400)]
    mbit: u32,
}

/// Does it.
///
/// # Errors
/// If the system refuses: it takes root and iproute2.
pub(crate) fn rig(task: &Task) -> anyhow::Result<()> {
    match task {
        Task::Up(size) => up(*size),
        Task::Down => Network::sweep(true),
        Task::Rate { host, mbit } => Network::standing()?.set_rate(*host, Direction::Both, *mbit),
        Task::Flow { from, to } => {
            let network = Network::standing()?;
            let _flow = Flow::start(&network, *from, *to)?;
            loop {
                std::thread::sleep(Duration::from_secs(3600));
            }
        }
        Task::Bench(options) => bench::bench(options),
    }
}

fn up(Size { hosts, mbit }: Size) -> anyhow::Result<()> {
    Network::sweep(true)?;
    let network = Network::up(hosts, mbit)?;
    let names: Vec<String> = (1..=hosts).map(|host| network.address(host)).collect();
    println!(
        "ip netns exec {} ropewalk run -launcher-exec {} -hosts {} -n {hosts} PROGRAM",
        network.namespace(0),
        network.command().display(),
        names.join(",")
    );
    network.keep();
    Ok(())
}
