//! `ropewalk bench reduce`: times the collective calls on the hosts that a user has.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    num::NonZeroU32,
    path::PathBuf,
    thread::available_parallelism,
};

use anyhow::{Context, bail, ensure};
use ropewalk_bench::output::print;
use ropewalk_launch::{JobEvent, JobSpec, Launcher, OutputStream, Segment, StdinSource, hosts::total_slots};
use ropewalk_output_file::OutputFile;

use super::{
    beside::{self, Latencies},
    call::Call,
    picture,
    rows::{Row, table},
    task::{Order, Safety, Task, Times, cases},
};
use crate::{reduce::RUN_OPTIONS, run::some_options, size::bytes};

/// Measure collective calls between ranks on this host or others
///
/// Each row has the median of several rounds, and the shortest and the longest. A round begins with a barrier, and its
/// time is the longest of all ranks. Two rounds before them do not count. Vectors are of f64, and the results are
/// checked. MB/s is the length of a rank's vector over the median.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The number of ranks [default: one for each core, or for each slot of the given hosts]
    #[arg(short, long = "ranks", value_name = "N")]
    n: Option<NonZeroU32>,
    /// The calls
    #[arg(
        long,
        value_enum,
        value_name = "CALL",
        value_delimiter = ',',
        default_value = "reduce,allreduce"
    )]
    calls: Vec<Call>,
    /// The lengths of each rank's vector, such as 65536, 64KiB or 8MiB [default: 8 to 8MiB in five steps]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = bytes)]
    bytes: Vec<u64>,
    /// The number of rounds of each row
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// The order in which contributions are combined
    #[arg(long, value_enum, default_value = "any")]
    order: Order,
    /// The losses that a contribution survives
    #[arg(long, value_enum, default_value = "process")]
    protection: Safety,
    /// Write one JSON object a row, as soon as it is measured
    #[arg(long)]
    json: bool,
    /// Run a program before, by the shell, which prints lines `BYTES MICROSECONDS` as osu_reduce of the OSU
    /// micro-benchmarks does, and show its times beside those of the one call
    #[arg(long, value_name = "COMMAND")]
    beside: Option<String>,
    /// Draw times over lengths into this file; - is the standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Measures, and shows the rows.
pub(super) fn run(arguments: &Arguments, run_words: Vec<OsString>) -> anyhow::Result<()> {
    let spec = some_options(run_words, RUN_OPTIONS)?;
    let ranks = arguments.ranks(&spec);
    ensure!(
        ranks <= JobSpec::RANKS_MAX,
        "{ranks} ranks are more than the {} that a job has",
        JobSpec::RANKS_MAX
    );
    let task = Task {
        cases: cases(&arguments.calls, &arguments.bytes, ranks)?,
        rounds: arguments.rounds,
        order: arguments.order,
        protection: arguments.protection,
    };
    if arguments.beside.is_some() && arguments.calls.len() != 1 {
        bail!("--beside has the times of one call: name it by --calls");
    }
    let svg = arguments.svg.as_deref().map(OutputFile::prepare).transpose()?;
    let latencies = arguments.beside.as_deref().map(beside::run).transpose()?;
    let rows = measure(arguments, &task, spec, ranks, latencies.as_ref())?;
    if let Some(svg) = svg {
        let beside = arguments.beside.as_deref().zip(latencies.as_ref());
        let below = format!(
            "median time over bytes of each rank's vector; {ranks} ranks, {} rounds",
            arguments.rounds
        );
        svg.write(picture::draw(&picture::lines(&rows, beside), &below))?;
    }
    if !arguments.json {
        print(table(&rows, latencies.is_some()))?;
    }
    Ok(())
}

/// Runs the job of the ranks, and takes their times.
fn measure(
    arguments: &Arguments,
    task: &Task,
    spec: JobSpec,
    ranks: u32,
    beside: Option<&Latencies>,
) -> anyhow::Result<Vec<Row>> {
    let executable = env::current_exe().context("cannot find the ropewalk executable")?;
    let workers = Segment {
        program: executable.into(),
        arguments: vec!["bench-reduce-worker".into(), serde_json::to_string(task)?.into()],
        ranks,
        ..spec.first
    };
    let mut launcher = Launcher::start(JobSpec {
        first: workers,
        stdin: StdinSource::Null,
        ..spec
    })?;
    let mut rows = Vec::new();
    while let Some(event) = launcher.next_event(None)? {
        match event {
            JobEvent::Output {
                stream: OutputStream::Stdout,
                line,
                ..
            } => {
                let times: Times = serde_json::from_slice(&line).context("a rank's times cannot be read")?;
                let row = Row::of(&times, ranks, task.order, beside).context("a rank has no times")?;
                if arguments.json {
                    print(serde_json::to_string(&row)?)?;
                }
                rows.push(row);
            }
            // If nobody reads the errors of ranks, the verdict says that they failed.
            JobEvent::Output { line, .. } => drop(io::stderr().write_all(&line)),
            JobEvent::Finished(outcome) if !outcome.is_success() => bail!("not measured: {outcome}"),
            _ => {}
        }
    }
    let (found, wanted) = (rows.len(), task.cases.len());
    ensure!(found == wanted, "the ranks measured {found} of {wanted} rows");
    Ok(rows)
}

impl Arguments {
    fn ranks(&self, spec: &JobSpec) -> u32 {
        match (self.n, &spec.hosts[..]) {
            (Some(ranks), _) => ranks.get(),
            (None, []) => available_parallelism().map_or(1, |cores| cores.get() as u32),
            (None, hosts) => total_slots(hosts),
        }
    }
}
