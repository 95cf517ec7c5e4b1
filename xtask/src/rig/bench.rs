//! The time of reductions on several hosts, in multiples of what the links allow.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ropewalk_launch::{Ending, JobEvent, JobSpec, Launcher, hosts::parse_hosts};
use serde_json::json;

use super::{Network, Size, flow::goodput, within};
use crate::{
    project,
    shell::{cargo, run},
};

/// How the measurement is done.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    size: Size,
    /// The lengths of the vectors, in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 20, 4 << 20, 8 << 20])]
    bytes: Vec<u64>,
    /// How often each is measured, in jobs of its own
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The order of combination, `any` or `ordered`
    #[arg(long, default_value = "any", value_parser = ["any", "ordered"])]
    order: String,
    /// Prints a line of JSON for each row
    #[arg(long)]
    json: bool,
    /// Where `ropewalk` and `reduce-vs-mpi` are, if they are not to be built
    #[arg(long)]
    built: Option<PathBuf>,
}

/// Measures, and prints a table.
///
/// The floor of a vector is its length over the goodput of one raw TCP stream over the same links in the same run, less
/// what these let through at once after a pause: the root has to receive so much. Medians.
///
/// # Errors
/// If something cannot be built or run, or a result is wrong.
pub(super) fn bench(options: &Options) -> anyhow::Result<()> {
    let built = match &options.built {
        Some(built) => std::path::absolute(built)?,
        None => {
            let words = "build --release --locked -p ropewalk -p reduce-vs-mpi --bins";
            run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
            project::target()?.join("release")
        }
    };
    let Size { hosts, mbit } = options.size;
    let network = Network::new(hosts, mbit)?;
    let (mut goodputs, mut times) = (Vec::new(), BTreeMap::<u64, Vec<f64>>::new());
    for round in 1..=options.rounds {
        eprintln!("==> round {round} of {}", options.rounds);
        goodputs.push(goodput(&network, 2, 1, GOODPUT_BYTES)?);
        let lines = job(&network, options, &built)?;
        for line in lines.lines() {
            let (bytes, nanoseconds) = line.split_once(' ').context("a row is two numbers")?;
            times
                .entry(bytes.parse()?)
                .or_default()
                .push(nanoseconds.trim().parse::<f64>()? / 1e9);
        }
    }
    let goodput = median(&mut goodputs);
    if !options.json {
        println!(
            "{hosts} hosts, {mbit} Mbit/s, order {}: a stream brings {:.2} MB/s",
            options.order,
            goodput / 1e6
        );
    }
    for (bytes, mut times) in times {
        let (time, floor) = (median(&mut times), bytes as f64 / goodput);
        match options.json {
            true => println!(
                "{}",
                json!({
                    "who": format!("ropewalk, {}", options.order), "hosts": hosts, "mbit": mbit, "bytes": bytes,
                    "interference": "none", "median_s": time, "floor_s": floor,
                })
            ),
            false => println!(
                "{:>6.2} MiB {:>8.2} ms = {:.2} x {:.2} ms",
                bytes as f64 / f64::from(1 << 20),
                time * 1e3,
                time / floor,
                floor * 1e3
            ),
        }
    }
    Ok(())
}

/// Runs one job with a rank on each host, and returns what its ranks print.
fn job(network: &Network, options: &Options, built: &std::path::Path) -> anyhow::Result<String> {
    let sizes = options.bytes.iter().map(u64::to_string);
    let arguments = std::iter::once(options.order.clone()).chain(sizes);
    let hosts: Vec<String> = (1..=network.hosts()).map(|host| network.address(host)).collect();
    let spec = JobSpec {
        arguments: arguments.map(Into::into).collect(),
        ranks: u32::from(network.hosts()),
        hosts: parse_hosts(&hosts.join(","))?,
        method: network.method(),
        timeout: Some(JOB_TIME_MAX),
        ..JobSpec::new(built.join("ropewalk"), built.join("reduce-vs-mpi"))
    };
    within(&network.namespace(0), move || {
        let deadline = Instant::now() + 2 * JOB_TIME_MAX;
        let mut launcher = Launcher::start(spec)?;
        let mut said = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match launcher.next_event(Some(left))? {
                Some(JobEvent::Output { line, .. }) => said.push_str(&String::from_utf8_lossy(&line)),
                Some(JobEvent::Finished(verdict)) => match verdict.ending {
                    Ending::Completed if verdict.failures.is_empty() => return Ok(said),
                    _ => bail!("{verdict}\n{said}"),
                },
                Some(_) => {}
                None => bail!("the job does not end"),
            }
        }
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Many times what the links let through at once.
const GOODPUT_BYTES: usize = 24 << 20;
const JOB_TIME_MAX: Duration = Duration::from_secs(60);
