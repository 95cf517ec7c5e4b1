//! The time of collectives on several hosts, in multiples of what the links allow.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use ropewalk_launch::{
    Ending, JobEvent, JobOutcome, JobSpec, Launcher, OnFailure, Segment, hosts::parse_hosts,
};
use ropewalk_rig::{Network, goodput, within};
use serde_json::json;

use super::{
    Size,
    interference::Interference,
    rivals::{Programs, Rival},
};
use crate::{
    project,
    shell::{cargo, output, run},
};

/// How the measurement is done.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    size: Size,
    /// How many ranks each host has
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    ranks_per_host: u16,
    /// The lengths of the vectors, in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 20, 4 << 20, 8 << 20])]
    bytes: Vec<u64>,
    /// How often each is measured, in jobs of its own
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How many rounds of each job count
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// How many calls a round has of which none waits for another
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    /// How long each rank computes between its calls and the wait for their results, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    compute: u64,
    /// The collective; the root of a reduction is rank 0
    #[arg(long, default_value = "reduce", value_parser = ["reduce", "allreduce"])]
    collective: String,
    /// Measures MPICH and Open MPI in turns with it
    #[arg(long)]
    rivals: bool,
    /// Measures Gloo in turns with it too: a Python that has PyTorch
    #[arg(long, value_name = "PYTHON")]
    gloo: Option<PathBuf>,
    /// The order of combination, `any` or `ordered`
    #[arg(long, default_value = "any", value_parser = ["any", "ordered"])]
    order: String,
    /// The loss that our contributions survive
    #[arg(long, default_value = "process", value_parser = ["none", "process", "host", "host-acknowledged"])]
    protection: String,
    /// Others that use the hosts meanwhile; nobody is told of them
    #[arg(long, value_delimiter = ',', default_value = "none")]
    interference: Vec<Interference>,
    /// Prints a line of JSON for each row
    #[arg(long)]
    json: bool,
    /// Where `ropewalk` and `reduce-vs-mpi` are, if they are not to be built
    #[arg(long)]
    built: Option<PathBuf>,
}

/// Measures, and prints a table of medians.
///
/// # Errors
/// If something cannot be built or run, or a result is wrong.
pub(super) fn bench(options: &Options) -> anyhow::Result<()> {
    let built = match &options.built {
        Some(built) => std::path::absolute(built)?,
        None => {
            let words = "build --release --locked -p ropewalk-cli -p reduce-vs-mpi --bins";
            run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
            project::target()?.join("release")
        }
    };
    let rivals = match options.rivals {
        true => Some((
            Programs::build()?,
            Rival::all(&options.collective, options.at_once),
        )),
        false => None,
    };
    let Size { hosts, mbit } = options.size;
    let most = options
        .interference
        .iter()
        .map(|interference| interference.hosts_min());
    let needed = most.max().unwrap_or_default();
    let is_killed = options.interference.contains(&Interference::Kill);
    ensure!(
        !is_killed || (options.bytes.len(), options.calls, options.at_once) == (1, 1, 1),
        "a rank is killed once in a job: give one size, and one call"
    );
    ensure!(
        hosts >= needed,
        "this interference is with the links of {needed} hosts, not of {hosts}"
    );
    let contest = Contest {
        options,
        built,
        rivals,
        network: Network::new(hosts, mbit)?,
    };
    for interference in &options.interference {
        contest.hold(*interference)?;
    }
    Ok(())
}

/// All who are measured, and where.
struct Contest<'a> {
    options: &'a Options,
    built: PathBuf,
    rivals: Option<(Programs, Vec<Rival>)>,
    network: Network,
}

impl Contest<'_> {
    /// Measures all in turns, and prints a table.
    fn hold(&self, interference: Interference) -> anyhow::Result<()> {
        let mut times = Times::default();
        let mut goodputs = Vec::new();
        for round in 1..=self.options.rounds {
            eprintln!("==> round {round} of {}", self.options.rounds);
            goodputs.push(goodput(&self.network, 2, 1, GOODPUT_BYTES)?);
            let _disturbed = interference.begin(&self.network, self.options.size.mbit)?;
            self.measure(interference, &mut times)?;
        }
        self.print(interference, &mut times, median(&mut goodputs))
    }

    fn measure(&self, interference: Interference, times: &mut Times) -> anyhow::Result<()> {
        let (network, options) = (&self.network, self.options);
        let words = options.words(interference);
        let expected = options.bytes.len() * options.calls as usize;
        times.note(
            0,
            &ours(network, options, interference, &words, &self.built)?,
            expected,
        )?;
        if let Some(python) = &options.gloo {
            let said = gloo(network, options, &words, &self.built, python).context("Gloo failed")?;
            times.note(GLOO, &said, expected)?;
        }
        let Some((programs, rivals)) = &self.rivals else {
            return Ok(());
        };
        for (rival, at) in rivals.iter().zip(GLOO + 1..) {
            let mut command = programs.command(rival, network, options.ranks_per_host);
            command.args(match rival.is_in_turn {
                true => [&["--in-turn".to_owned()], &words[1..]].concat(),
                false => words.clone(),
            });
            command.arg(&options.collective).args(options.sizes());
            let said = within(&network.namespace(0), || output(command));
            // A launcher of theirs that fails now and then does not spoil what the others took.
            if let Err(error) = said.and_then(|said| times.note(at, &said, expected)) {
                eprintln!("{} failed, and has one job less: {error:#}", rival.name);
            }
        }
        Ok(())
    }

    fn print(&self, interference: Interference, times: &mut Times, goodput: f64) -> anyhow::Result<()> {
        let options = self.options;
        let Size { hosts, mbit } = options.size;
        let with = interference.name();
        let mut names = vec![(0, format!("ropewalk, {}, {}", options.order, options.protection))];
        names.extend(options.gloo.iter().map(|_| (GLOO, "Gloo".to_owned())));
        let rivals = self.rivals.iter().flat_map(|(_, rivals)| rivals).zip(GLOO + 1..);
        names.extend(rivals.map(|(rival, at)| (at, rival.full_name(options.at_once))));
        if !options.json {
            let (brought, ranks) = (goodput / 1e6, options.ranks_per_host);
            println!(
                "{hosts} hosts, {mbit} Mbit/s, ranks on each: {ranks}, interference: {with}, calls at once: {}, \
                 computing for {} ms meanwhile; a stream over free links brings {brought:.2} MB/s; TCP's congestion \
                 control: {}{}\n",
                options.at_once,
                options.compute,
                congestion_control()?,
                if interference.has_peaks() {
                    "; mean, and 95th percentile"
                } else {
                    ""
                },
            );
            let sizes: Vec<String> = options.bytes.iter().map(|bytes| size(*bytes)).collect();
            println!("| {} | {} |", options.collective, sizes.join(" | "));
            println!("|---|{}", "---|".repeat(sizes.len()));
        }
        for (at, name) in names {
            let mut cells = String::new();
            for &bytes in &options.bytes {
                let times = times
                    .of(at, bytes)
                    .with_context(|| format!("no job of {name} ended"))?;
                let one = interference.floor(&options.collective, hosts) * bytes as f64 / goodput;
                let floor = (f64::from(options.at_once) * one).max(options.compute as f64 / 1e3);
                let (mean, p95) = (mean(times), percentile_95(times));
                let time = median(times);
                match (options.json, interference.has_peaks()) {
                    (true, _) => println!(
                        "{}",
                        json!({
                            "who": name, "collective": options.collective, "hosts": hosts,
                            "ranks_per_host": options.ranks_per_host, "mbit": mbit, "bytes": bytes,
                            "interference": with, "at_once": options.at_once,
                            "compute_ms": options.compute, "median_s": time, "mean_s": mean,
                            "p95_s": p95, "floor_s": floor, "times_floor": time / floor,
                        })
                    ),
                    (false, false) => write!(cells, " {:.1} ms, {:.2} x |", time * 1e3, time / floor)?,
                    (false, true) => {
                        write!(
                            cells,
                            " {:.1} ms, {:.2} x; {:.1} ms |",
                            mean * 1e3,
                            mean / floor,
                            p95 * 1e3
                        )?;
                    }
                }
            }
            if !options.json {
                println!("| {name} |{cells}");
            }
        }
        if !options.json {
            println!();
        }
        Ok(())
    }
}

impl Options {
    /// The words before the collective that all programs take.
    fn words(&self, interference: Interference) -> Vec<String> {
        let late = interference.late().as_millis();
        let words = [
            "--at-once",
            &self.at_once.to_string(),
            "--rounds",
            &self.calls.to_string(),
            "--late-ms",
            &late.to_string(),
            "--compute-ms",
            &self.compute.to_string(),
        ];
        words.map(str::to_owned).into()
    }

    fn sizes(&self) -> impl Iterator<Item = String> {
        self.bytes.iter().map(u64::to_string)
    }
}

/// Seconds of each contestant for each length.
#[derive(Default)]
struct Times(BTreeMap<(usize, u64), Vec<f64>>);

impl Times {
    /// Notes lines of `SIZE NANOSECONDS`.
    fn note(&mut self, contestant: usize, lines: &str, expected: usize) -> anyhow::Result<()> {
        let rows = lines.lines().count();
        ensure!(rows == expected, "{rows} rows were printed, not {expected}");
        for line in lines.lines() {
            let (bytes, nanoseconds) = line.split_once(' ').context("a row is two numbers")?;
            let seconds = nanoseconds.trim().parse::<f64>()? / 1e9;
            self.0
                .entry((contestant, bytes.parse()?))
                .or_default()
                .push(seconds);
        }
        Ok(())
    }

    fn of(&mut self, contestant: usize, bytes: u64) -> Option<&mut [f64]> {
        self.0.get_mut(&(contestant, bytes)).map(Vec::as_mut_slice)
    }
}

/// Runs our program on all hosts, and returns what its ranks print.
fn ours(
    network: &Network,
    options: &Options,
    interference: Interference,
    words: &[String],
    built: &Path,
) -> anyhow::Result<String> {
    let is_killed = interference == Interference::Kill;
    let kill = ["--kill".to_owned(), u8::from(is_killed).to_string()];
    let words = words
        .iter()
        .chain(&kill)
        .chain([&options.collective, &options.order, &options.protection]);
    let words = words.cloned().chain(options.sizes()).map(Into::into);
    let segment = Segment {
        arguments: words.collect(),
        ..Segment::new(built.join("reduce-vs-mpi"))
    };
    let mut spec = JobSpec::new(built.join("ropewalk"), segment);
    if is_killed {
        spec.reactions = OnFailure::Continue.into();
    }
    job(network, options.ranks_per_host, spec)
}

/// The same with Gloo. Its ranks find each other by the variables that they get from our launcher.
fn gloo(
    network: &Network,
    options: &Options,
    words: &[String],
    built: &Path,
    python: &Path,
) -> anyhow::Result<String> {
    let script = project::root().join("benches/reduce_vs_mpi/gloo_collective.py");
    let words = words.iter().chain([&options.collective]).cloned();
    let words = words.chain(options.sizes()).map(Into::into);
    job(
        network,
        options.ranks_per_host,
        JobSpec::new(
            built.join("ropewalk"),
            Segment {
                arguments: [script.into()].into_iter().chain(words).collect(),
                environment: vec![("GLOO_SOCKET_IFNAME".into(), "eth0".into())],
                ..Segment::new(python)
            },
        ),
    )
}

/// Runs a job on all hosts, and returns its output. One that goes on after a failure is to lose one rank.
///
/// # Errors
/// If it fails, or does not end in time.
pub(crate) fn job(network: &Network, ranks_per_host: u16, mut spec: JobSpec) -> anyhow::Result<String> {
    let lost = usize::from(spec.reactions.on_failure == OnFailure::Continue);
    let hosts = network.hosts_with_ranks(ranks_per_host);
    spec.first.ranks = u32::from(network.hosts()) * u32::from(ranks_per_host);
    spec.hosts = parse_hosts(&hosts)?;
    spec.agents.method = network.method();
    spec.time_limits.timeout = Some(JOB_TIME_MAX);
    within(&network.namespace(0), move || {
        let deadline = Instant::now() + 2 * JOB_TIME_MAX;
        let mut launcher = Launcher::start(spec)?;
        let mut said = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match launcher.next_event(Some(left))? {
                Some(JobEvent::Output { line, .. }) => said.push_str(&String::from_utf8_lossy(&line)),
                Some(JobEvent::Finished(JobOutcome { verdict, .. })) => match verdict.ending {
                    Ending::Completed if verdict.failures.len() == lost => return Ok(said),
                    _ => bail!("{verdict}\n{said}"),
                },
                Some(_) => {}
                None => bail!("the job does not end"),
            }
        }
    })
}

/// The system's choice for new connections, which decides what a stream gets beside others.
fn congestion_control() -> anyhow::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
    Ok(name.trim().to_owned())
}

fn size(bytes: u64) -> String {
    match bytes % MIB {
        0 => format!("{} MiB", bytes / MIB),
        _ => format!("{} KiB", bytes as f64 / 1024.0),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of at least one value.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of values in any order, of which there is at least one.
fn percentile_95(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[(values.len() * 19 / 20).min(values.len() - 1)]
}

const MIB: u64 = 1 << 20;
/// Its place among the contestants; ours is the first.
const GLOO: usize = 1;
/// Many times what the links let through at once.
const GOODPUT_BYTES: usize = 24 << 20;
const JOB_TIME_MAX: Duration = Duration::from_secs(60);
