//! Table 2 of the papers on reduction: reductions that lose a process.

use std::{collections::BTreeMap, fmt::Write, fs};

use anyhow::{Context, anyhow, bail};
use ropewalk_reduce_core::End;
use ropewalk_sim::{
    Dice, Nanos,
    baseline::{
        self, Baseline,
        paper::{self, FaultPosition, PaperOutcome},
    },
    reduction::{self, Fault, Setting},
};
use serde_json::Value;

use super::{
    Extent, Made,
    model::task_time,
    points::{HOSTS, on_all_processors, ours, setting},
    reduction::time,
};

/// "Seven rounds of 100 runs of 32 MB": process 1 dies at a random moment of the time that a reduction takes.
pub(super) fn table2(extent: Extent) -> anyhow::Result<Made> {
    let (rounds, runs) = rounds_and_runs(extent);
    let alone = setting(HOSTS, 32 << 20);
    let time_alone = ours(&alone)?.time;
    let mut copied = alone.clone();
    // Every host sends one original and receives one, and the reduction goes on meanwhile, as in the paper.
    copied.copies =
        Some(Nanos::of_transfer(copied.calls.bytes, copied.cluster.rate) + copied.cluster.latency);
    let time_copied = ours(&copied)?.time;
    // A call returns when its copy is stored, and only then counts.
    let mut acknowledged = copied.clone();
    acknowledged.acknowledged = Some(alone.cluster.latency);
    let time_acknowledged = ours(&acknowledged)?.time;
    let stored = copied.copies.unwrap_or_default() + alone.cluster.latency;
    let begin = Nanos::ZERO;
    let cases = [
        (
            "process 1 dies",
            &alone,
            Fault::KillRank(1),
            begin..time_alone,
            rounds,
        ),
        (
            "its host dies, copies are made meanwhile",
            &copied,
            Fault::KillHost(1),
            begin..time_copied,
            1,
        ),
        (
            "its host dies, after its copy was acknowledged",
            &acknowledged,
            Fault::KillHost(1),
            stored..time_acknowledged,
            1,
        ),
        (
            "its host dies, no copies",
            &alone,
            Fault::KillHost(1),
            begin..time_alone,
            1,
        ),
    ];
    let mut text = format!(
        "Simulated on {HOSTS} hosts, 32 MiB, rounds of {runs} runs:\n\n\
         | | undisturbed | not recovered, by round | recovered | mean time of the recovered |\n|---|---|---|---|---|\n"
    );
    for (name, setting, fault, span, rounds) in cases {
        let jobs: Vec<_> = (0..rounds * runs).collect();
        let times = on_all_processors(&jobs, |&run| {
            let at = Nanos(Dice::new(run).within(span.start.0..span.end.0));
            recovered(setting, fault, at)
        })?;
        let by_round = times.chunks(runs as usize);
        let failures = by_round.map(|round| round.iter().filter(|time| time.is_none()).count().to_string());
        let failures = failures.collect::<Vec<_>>().join(", ");
        let done: Vec<f64> = times.iter().flatten().copied().collect();
        let mean = match done.len() {
            0 => String::new(),
            count => time(done.iter().sum::<f64>() / count as f64),
        };
        let part = done.len() as f64 / times.len() as f64 * 100.0;
        let undisturbed = time(span.end.as_seconds());
        writeln!(
            text,
            "| {name} | {undisturbed} | {failures} | {part:.2} % | {mean} |"
        )?;
    }
    write!(
        text,
        "\nReal processes, all runs that `docs/soak.jsonl` counts:\n\n{}",
        counted()?
    )?;
    Ok(Made { text, picture: None })
}

fn rounds_and_runs(extent: Extent) -> (u64, u64) {
    match extent {
        Extent::Full => (7, 100),
        Extent::Quick => (2, 2),
    }
}

/// The rows of the paper's policy and of MPI, and the policy's runs by the place of the fault.
pub(super) fn table2_of_others(extent: Extent) -> anyhow::Result<Made> {
    let (rounds, runs) = rounds_and_runs(extent);
    let mut setting = setting(HOSTS, 32 << 20);
    setting.copies =
        Some(Nanos::of_transfer(setting.calls.bytes, setting.cluster.rate) + setting.cluster.latency);
    let setting = &setting;
    let mut text = format!(
        "Simulated on {HOSTS} hosts, 32 MiB, rounds of {runs} runs:\n\n\
         | | undisturbed | not recovered, by round | recovered | mean time of the recovered |\n|---|---|---|---|---|\n"
    );
    let undisturbed = paper::run(setting).outcome.time;
    let fails = faults_of_paper(setting, rounds * runs, |_| 1)?;
    let is_lost = |outcome: &&PaperOutcome| outcome.outcome.time == Nanos::NEVER;
    let by_round = fails.chunks(runs as usize);
    let failures = by_round.map(|round| round.iter().filter(is_lost).count().to_string());
    let failures = failures.collect::<Vec<_>>().join(", ");
    let times = fails.iter().filter(|outcome| !is_lost(outcome));
    let times: Vec<f64> = times.map(|outcome| outcome.outcome.time.as_seconds()).collect();
    let mean = match times.len() {
        0 => String::new(),
        count => time(times.iter().sum::<f64>() / count as f64),
    };
    let part = times.len() as f64 / fails.len() as f64 * 100.0;
    writeln!(
        text,
        "| the paper's policy, process 1 dies with its host | {} | {failures} | {part:.2} % | {mean} |",
        time(undisturbed.as_seconds())
    )?;
    let mpi = baseline::run(setting, Baseline::Rabenseifner).time.as_seconds();
    writeln!(
        text,
        "| MPI, not simulated: a process that dies ends the job | {} | all | 0 % | |",
        time(mpi)
    )?;
    let hosts = u64::from(setting.hosts);
    let any = |dice: &mut Dice| dice.within(1..hosts) as u32;
    let fails = faults_of_paper(setting, rounds * runs, any)?;
    write!(
        text,
        "\nThe paper's policy by the place of the fault, {} runs, in each of which any process but the master dies:\n\n\
         | the process | runs | not recovered |\n|---|---|---|\n",
        fails.len()
    )?;
    for (position, name) in POSITIONS {
        let there = fails.iter().filter(|outcome| outcome.position == Some(position));
        let (count, lost) = there.fold((0, 0), |(count, lost), outcome| {
            (count + 1, lost + u32::from(is_lost(&outcome)))
        });
        writeln!(text, "| {name} | {count} | {lost} |")?;
    }
    Ok(Made { text, picture: None })
}

/// Runs of the paper's policy in which a process dies at a random moment of the undisturbed time.
fn faults_of_paper(
    setting: &Setting,
    runs: u64,
    victim: impl Fn(&mut Dice) -> u32 + Sync,
) -> anyhow::Result<Vec<PaperOutcome>> {
    let undisturbed = paper::run(setting).outcome.time;
    let jobs: Vec<u64> = (0..runs).collect();
    on_all_processors(&jobs, |&run| {
        let mut dice = Dice::new(run);
        let at = Nanos(dice.within(0..undisturbed.0));
        let mut setting = setting.clone();
        setting.faults = vec![(at, Fault::KillHost(victim(&mut dice)))];
        Ok(paper::run(&setting))
    })
}

/// Formula (5): the reliability of a reduction that loses a process, by exposure and time, beside counted losses.
pub(super) fn formula5(extent: Extent) -> anyhow::Result<Made> {
    let runs = match extent {
        Extent::Full => 2_000,
        Extent::Quick => 20,
    };
    let mut text = String::from(
        "| processes | time T, (3) | T, simulated | exposure E | 1 - E / T, (3) | 1 - E / T, simulated | recovered, \
         counted | P(loss) of any reduction |\n|---|---|---|---|---|---|---|---|\n",
    );
    for hosts in [50, 100, 150, 200] {
        let mut setting = setting(hosts, 32 << 20);
        let exposure =
            Nanos::of_transfer(setting.calls.bytes, setting.cluster.rate) + setting.cluster.latency;
        setting.copies = Some(exposure);
        let undisturbed = paper::run(&setting).outcome.time.as_seconds();
        let any = |dice: &mut Dice| dice.within(1..u64::from(hosts)) as u32;
        let outcomes = faults_of_paper(&setting, runs, any)?;
        let recovered = outcomes
            .iter()
            .filter(|outcome| outcome.outcome.time != Nanos::NEVER);
        let recovered = recovered.count() as f64 / outcomes.len() as f64;
        let (formula, exposure) = (
            task_time(hosts, setting.calls.bytes as f64),
            exposure.as_seconds(),
        );
        let loss = -(-f64::from(hosts) * exposure / MTBF_SECONDS).exp_m1();
        writeln!(
            text,
            "| {hosts} | {} | {} | {} | {:.4} | {:.4} | {recovered:.4} | {loss:.1e} |",
            time(formula),
            time(undisturbed),
            time(exposure),
            1.0 - exposure / formula,
            1.0 - exposure / undisturbed,
        )?;
    }
    write!(
        text,
        "\n32 MiB; {runs} runs a row, in each of which a process other than the master dies with its host at a random \
         moment.\nP(loss) for an MTBF of one year a host.\n"
    )?;
    Ok(Made { text, picture: None })
}

/// The time of the reduction if it recovers; an error if it ends wrong or never.
fn recovered(setting: &Setting, fault: Fault, at: Nanos) -> anyhow::Result<Option<f64>> {
    let mut setting = setting.clone();
    setting.faults = vec![(at, fault)];
    let outcome =
        reduction::run(&setting).map_err(|violation| anyhow!("a promise is broken: {violation:?}"))?;
    match outcome.end {
        Some(End::Done { excluded, .. }) if excluded.is_empty() => Ok(Some(outcome.time.as_seconds())),
        Some(End::Lost(_)) => Ok(None),
        end => bail!("neither a result nor the loss of a contribution: {end:?}"),
    }
}

/// The kills of `cargo xtask chaos`, by kind.
fn counted() -> anyhow::Result<String> {
    let path = crate::project::root().join("docs/soak.jsonl");
    let lines = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut cells: BTreeMap<&str, Counts> = BTreeMap::new();
    for line in lines.lines() {
        let row: Value = serde_json::from_str(line)?;
        let cell = row["cell"].as_str().unwrap_or_default();
        let Some((name, _)) = CELLS.iter().find(|(name, _)| *name == cell) else {
            continue;
        };
        cells.entry(name).or_default().add(&row)?;
    }
    let mut table = String::from(
        "| killed | runs | in the reduction | exact | told who is lost | after the end | failed |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (name, text) in CELLS {
        let counts = cells
            .get(name)
            .with_context(|| format!("{name} was never counted"))?;
        writeln!(
            table,
            "| {text} | {} | {} | {} | {} | {} | {} |",
            counts.runs, counts.hit, counts.exact, counts.named, counts.after_the_end, counts.failed
        )?;
    }
    Ok(table)
}

/// The places of a fault in the paper's policy.
const POSITIONS: [(FaultPosition, &str); 5] = [
    (FaultPosition::Waiting, "had data that waited in the queue"),
    (FaultPosition::Assigned, "had been sent a task (position 1)"),
    (FaultPosition::Executing, "executed a task (position 2)"),
    (FaultPosition::Providing, "provided data (position 3)"),
    (FaultPosition::Done, "had nothing any more that was needed"),
];

/// The mean time between failures of a host.
const MTBF_SECONDS: f64 = 365.0 * 86_400.0;

#[derive(Default)]
struct Counts {
    runs: u64,
    hit: u64,
    exact: u64,
    named: u64,
    after_the_end: u64,
    failed: u64,
}

impl Counts {
    fn add(&mut self, row: &Value) -> anyhow::Result<()> {
        let of = |name: &str| {
            row[name]
                .as_u64()
                .with_context(|| format!("a row without {name:?}: {row}"))
        };
        self.runs += of("runs")?;
        self.hit += of("hit")?;
        self.exact += of("exact")?;
        self.named += of("named")?;
        self.after_the_end += of("after_the_end")?;
        self.failed += of("broken")? + of("hung")? + of("lost")? + of("wrong")?;
        Ok(())
    }
}

/// The cells of `docs/faults.md` that kill, without those of short calls and of one host.
const CELLS: [(&str, &str); 7] = [
    ("kill", "any process"),
    ("worker-kill", "a process that neither schedules nor is root"),
    ("scheduler-kill", "the scheduler"),
    ("root-kill", "the root"),
    ("two-kills", "two processes at once"),
    ("host-kill", "a host"),
    ("host-kill-copied", "a host, each contribution is copied"),
];
