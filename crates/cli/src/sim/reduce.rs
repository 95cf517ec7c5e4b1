use std::{process::ExitCode, str::FromStr};

use anyhow::{Context, anyhow, bail, ensure};
use clap::ValueEnum;
use comfy_table::Table;
use ropewalk_bench::output::print;
use ropewalk_reduce_core::{End, Order};
use ropewalk_sim::{
    Nanos,
    baseline::{self, Baseline},
    reduction::{self, Collective, Fault, Outcome, Setting, Slow, Violation},
};
use serde::Serialize;

use super::seeds::{self, Seeds};
use crate::{
    size::bytes,
    table::table_of,
    times::{TIMES, duration, seconds, shown},
};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// How many hosts, with a rank each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    hosts: u32,
    /// The collective that the ranks call
    #[arg(long, value_name = "NAME", default_value = "reduce")]
    collective: Kind,
    /// How long each rank's contribution is, such as 65536, 64KiB, 128MiB or 1GB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = bytes)]
    size: u64,
    /// Which algorithms: streaming is ours; paper, binomial, rabenseifner, pipeline, doubling, ring and linear are
    /// others'. Without this option all that there are for the collective
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    policy: Vec<Policy>,
    /// The rank that gets the result, or makes what is broadcast
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    root: u32,
    /// Fold in a fixed order, for equal results bit for bit
    #[arg(long)]
    ordered: bool,
    /// The rate of each link and direction, in Mbit/s
    #[arg(long, value_name = "MBIT", default_value_t = 400.0)]
    mbit: f64,
    /// How long a message takes besides its bytes
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = seconds)]
    latency: f64,
    /// A slow host: the parts that are left of its rate out, of its rate in and of its processor, such as 3:0.1:0.1:1
    #[arg(long, value_name = "HOST:OUT:IN:CPU")]
    slow: Vec<SlowHost>,
    /// A rank that calls late
    #[arg(long, value_name = "RANK:TIME")]
    late: Vec<RankTime>,
    /// A rank that dies; MPI would end, so that only ours is shown
    #[arg(long, value_name = "RANK:TIME")]
    kill: Vec<RankTime>,
    /// How many times the ranks make the call, one after the other: the last one is shown. Ours plans a call ahead if
    /// it was made twice before
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=100),
        conflicts_with = "kill"
    )]
    calls: u32,
    /// Write one JSON object a row
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    seeds: Seeds,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Reduce,
    Allreduce,
    Broadcast,
    Gather,
    Allgather,
}

impl From<Kind> for Collective {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Reduce => Self::Reduce,
            Kind::Allreduce => Self::Allreduce,
            Kind::Broadcast => Self::Broadcast,
            Kind::Gather => Self::Gather,
            Kind::Allgather => Self::Allgather,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    Streaming,
    Paper,
    Binomial,
    Rabenseifner,
    Pipeline,
    Doubling,
    Ring,
    Linear,
}

impl Policy {
    fn name(self) -> String {
        self.to_possible_value()
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    fn baseline(self) -> Option<Baseline> {
        const SEGMENT: u64 = 65_536;
        Some(match self {
            Self::Streaming => return None,
            Self::Paper => Baseline::Paper,
            Self::Binomial => Baseline::Binomial,
            Self::Rabenseifner => Baseline::Rabenseifner,
            Self::Pipeline => Baseline::Pipeline(SEGMENT),
            Self::Doubling => Baseline::RecursiveDoubling,
            Self::Ring => Baseline::Ring,
            Self::Linear => Baseline::Linear,
        })
    }

    fn is_for(self, collective: Collective) -> bool {
        self.baseline().is_none_or(|baseline| baseline.is_for(collective))
    }
}

#[derive(Clone, Copy, Debug)]
struct SlowHost(Slow);

impl FromStr for SlowHost {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let [host, outwards, inwards, folding] = parts[..] else {
            bail!("HOST:OUT:IN:CPU is wanted, such as 3:0.1:0.1:1");
        };
        let part = |text: &str| match text.parse::<f64>() {
            Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
            _ => Err(anyhow!("a part above 0 and up to 1 is wanted, not {text:?}")),
        };
        Ok(Self(Slow {
            host: host.parse().context("HOST is a number")?,
            outwards: part(outwards)?,
            inwards: part(inwards)?,
            folding: part(folding)?,
            is_known: true,
        }))
    }
}

#[derive(Clone, Copy, Debug)]
struct RankTime(u32, Nanos);

impl FromStr for RankTime {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (rank, time) = text
            .split_once(':')
            .context("RANK:TIME is wanted, such as 3:50ms")?;
        let time = duration(time).with_context(|| format!("{TIMES} is wanted, not {time:?}"))?;
        Ok(Self(rank.parse().context("RANK is a number")?, time.into()))
    }
}

#[derive(Debug, Serialize)]
struct Row {
    policy: String,
    hosts: u32,
    bytes: u64,
    time_s: f64,
    floor_s: f64,
    messages_to_scheduler: u64,
    messages_from_scheduler: u64,
    events: u64,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let judge = |seed| {
        let jobs = Setting::of_seed(seed).map(|setting| reduction::run(&setting));
        let has_result = |job: &Result<Outcome, _>| {
            job.as_ref()
                .is_ok_and(|outcome| matches!(outcome.end, Some(End::Done { .. })))
        };
        match jobs.iter().find_map(|job| job.as_ref().err()) {
            Some(violation) => seeds::End::Broken(format!("{violation:?}")),
            None if jobs.iter().all(has_result) => seeds::End::Well,
            None => seeds::End::Failed,
        }
    };
    if let Some(code) = arguments.seeds.search("reduce", judge)? {
        return Ok(code);
    }
    let setting = arguments.setting()?;
    let mut rows = Vec::new();
    for policy in arguments.policies()? {
        if policy.baseline().is_some() && !setting.faults.is_empty() {
            continue;
        }
        let row = row(&setting, policy)?;
        if arguments.json {
            print(serde_json::to_string(&row)?)?;
        }
        rows.push(row);
    }
    if !arguments.json {
        print(table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn policies(&self) -> anyhow::Result<Vec<Policy>> {
        let is_for = |policy: &Policy| policy.is_for(self.collective.into());
        let all: Vec<Policy> = Policy::value_variants().iter().copied().filter(is_for).collect();
        if let Some(other) = self.policy.iter().find(|policy| !is_for(policy)) {
            let collective = format!("{:?}", self.collective).to_lowercase();
            let names: Vec<String> = all.iter().map(|policy| policy.name()).collect();
            bail!(
                "--collective {collective} has {}, not {}",
                names.join(", "),
                other.name()
            );
        }
        Ok(match self.policy.is_empty() {
            true => all,
            false => self.policy.clone(),
        })
    }

    fn setting(&self) -> anyhow::Result<Setting> {
        let is_a_rank = |rank: u32| {
            ensure!(
                rank < self.hosts,
                "there is no rank {rank}: they go from 0 to {}",
                self.hosts - 1
            );
            Ok(rank)
        };
        ensure!(
            self.mbit > 0.0 && self.mbit < 1e9,
            "--mbit has to be above 0, not {}",
            self.mbit
        );
        let mut setting = Setting::new(self.hosts, self.size);
        setting.calls.root = is_a_rank(self.root)?;
        setting.set_collective(self.collective.into());
        if self.ordered {
            setting.calls.order = Order::Ordered;
        }
        setting.cluster.rate = self.mbit * 1e6 / 8.0;
        setting.cluster.latency = Nanos::from_seconds(self.latency);
        setting.calls.count = self.calls;
        setting.seed = self.seeds.seed;
        for SlowHost(slow) in &self.slow {
            is_a_rank(slow.host)?;
            setting.cluster.slow.push(*slow);
        }
        for RankTime(rank, time) in &self.late {
            setting.late.push((is_a_rank(*rank)?, *time));
        }
        for RankTime(rank, time) in &self.kill {
            setting.faults.push((*time, Fault::KillRank(is_a_rank(*rank)?)));
        }
        Ok(setting)
    }
}

/// The outcome of the last call.
fn last_of(setting: &Setting) -> Result<Outcome, Violation> {
    match setting.calls.count {
        0 | 1 => reduction::run(setting),
        _ => {
            let mut outcomes = reduction::run_in_turns(setting)?;
            Ok(outcomes.swap_remove(outcomes.len() - 1))
        }
    }
}

fn row(setting: &Setting, policy: Policy) -> anyhow::Result<Row> {
    let (time, received, sent, events) = match policy.baseline() {
        Some(baseline) => {
            // All of its calls are alike.
            let mut setting = setting.clone();
            setting.calls.count = 1;
            let outcome = baseline::run(&setting, baseline);
            let (received, sent) = (outcome.messages_to_scheduler, outcome.messages_from_scheduler);
            (outcome.time, received, sent, outcome.events)
        }
        None => {
            let outcome = last_of(setting)
                .map_err(|violation| anyhow!("a promise is broken, please report it: {violation:?}"))?;
            match outcome.end {
                Some(End::Done { .. }) => {}
                end => bail!("the reduction has no result: {end:?}"),
            }
            let (received, sent) = (outcome.messages_to_scheduler, outcome.messages_from_scheduler);
            (outcome.time, received, sent, outcome.events)
        }
    };
    Ok(Row {
        policy: policy.name(),
        hosts: setting.hosts,
        bytes: setting.calls.bytes,
        time_s: time.as_seconds(),
        floor_s: setting.floor().as_seconds(),
        messages_to_scheduler: received,
        messages_from_scheduler: sent,
        events,
    })
}

fn table(rows: &[Row]) -> Table {
    let mut table = table_of(&["policy", "time", "x floor", "to scheduler", "from scheduler"]);
    for row in rows {
        table.add_row([
            row.policy.clone(),
            shown(row.time_s),
            format!("{:.2}", row.time_s / row.floor_s.max(f64::MIN_POSITIVE)),
            row.messages_to_scheduler.to_string(),
            row.messages_from_scheduler.to_string(),
        ]);
    }
    table
}
