//! The costs of starting MPI programs, beside Hydra: time on one host, memory, time on many hosts.

mod hosts;
mod init;
mod memory;

/// The measurements to make, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this; by default all.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How many ranks call MPI_Init and MPI_Finalize, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32])]
    ranks: Vec<u32>,
    /// How many processes run while memory is measured.
    #[arg(long, default_value_t = 1000)]
    processes: u32,
    /// How many hosts, which are network namespaces; that takes root and iproute2.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=99))]
    hosts: u8,
    /// How often each is measured; the median is shown.
    #[arg(long, default_value_t = 7)]
    repetitions: usize,
    /// Write one JSON object a row of MPI_Init, with all times.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Agents on many hosts.
    Hosts,
    /// MPI_Init and MPI_Finalize on this host, also of Open MPI and below srun.
    Init,
    /// MPI_Init and MPI_Finalize of MPICH on four hosts and on all.
    InitHosts,
    /// Memory of launcher and agent.
    Memory,
}

/// Measures in turn, so that what else the machine does hits both alike.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let is_wanted = |part| arguments.only.is_none_or(|only| only == part);
    if is_wanted(Part::Init) {
        init::measure(arguments)?;
    }
    if is_wanted(Part::InitHosts) {
        init::measure_on_hosts(arguments)?;
    }
    if is_wanted(Part::Memory) {
        memory::measure(arguments)?;
    }
    if is_wanted(Part::Hosts) {
        hosts::measure(arguments)?;
    }
    Ok(())
}
