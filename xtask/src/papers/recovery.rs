//! Table 2 of the papers on reduction: reductions that lose a process.

use std::{collections::BTreeMap, fmt::Write, fs};

use anyhow::{Context, anyhow, bail};
use ropewalk_reduce_core::End;
use ropewalk_sim::{
    Dice, Nanos,
    reduction::{self, Fault, Setting},
};
use serde_json::Value;

use super::{
    Extent, Made,
    points::{HOSTS, on_all_processors, ours, setting},
    reduction::time,
};

/// "Seven rounds of 100 runs of 32 MB": process 1 dies at a random moment of the time that a reduction takes.
pub(super) fn table2(extent: Extent) -> anyhow::Result<Made> {
    let (rounds, runs) = match extent {
        Extent::Full => (7, 100),
        Extent::Quick => (2, 2),
    };
    let alone = setting(HOSTS, 32 << 20);
    let time_alone = ours(&alone)?.time;
    let mut copied = alone.clone();
    // Every host sends one original and receives one, and the reduction goes on meanwhile, as in the paper.
    copied.copies = Some(Nanos::of_transfer(copied.bytes, copied.rate) + copied.latency);
    let time_copied = ours(&copied)?.time;
    // A call returns when its copy is stored, and only then counts.
    let mut acknowledged = copied.clone();
    acknowledged.acknowledged = Some(alone.latency);
    let time_acknowledged = ours(&acknowledged)?.time;
    let stored = copied.copies.unwrap_or_default() + alone.latency;
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
