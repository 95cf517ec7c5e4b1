//! Reductions in real processes, one of which is killed in the middle, again and again.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_fabric::TraceEvent;
use ropewalk_group::Rank;
use ropewalk_launch::{Ending, FailureKind, JobEvent, JobSpec, Launcher, OnFailure, Verdict};
use thiserror::Error;

use crate::{
    project,
    shell::{cargo, run},
};

/// How the soak test is done.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many reductions
    #[arg(long, default_value_t = 200)]
    runs: u64,
    /// How many processes take part in each, at least two
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..))]
    workers: u32,
    /// How long the vector is, in bytes
    #[arg(long, default_value_t = 8 << 20)]
    bytes: u64,
    /// Decides who is killed and when; by default the time. Run i has the seed SEED + i
    #[arg(long)]
    seed: Option<u64>,
}

impl Options {
    /// As short as it may be to say anything.
    pub(crate) fn short() -> Self {
        Self {
            runs: 12,
            workers: 8,
            bytes: 8 << 20,
            seed: None,
        }
    }
}

/// Runs reductions of which each loses one random worker, not the root, at a random moment between its
/// contribution and the expected end. Every result must be exact, and every run must end.
///
/// # Errors
/// If one of them is not or does not; says how to repeat it.
pub(crate) fn soak_kill(options: &Options) -> anyhow::Result<()> {
    let soak = Soak::prepare(options)?;
    let seed = match options.seed {
        Some(seed) => seed,
        None => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_secs(),
    };
    eprintln!("==> soak-kill: {} runs from seed {seed}", options.runs);

    let undisturbed = (0..CALIBRATIONS)
        .map(|at| {
            soak.run(ORDERS[at % ORDERS.len()], None)
                .map(|exact| exact.elapsed)
        })
        .collect::<anyhow::Result<Vec<_>>>()
        .context("a run without any kill failed")?;
    let usual = median(undisturbed);

    let (mut failed, mut hangs, mut hits, mut redone, mut times) = (Vec::new(), 0, 0, 0, Vec::new());
    for seed in (0..options.runs).map(|run| seed.wrapping_add(run)) {
        let order = ORDERS[(seed % ORDERS.len() as u64) as usize];
        match soak.run(order, Some(Kill::draw(seed, options.workers, usual))) {
            Ok(exact) => {
                hits += u64::from(exact.lost_one);
                redone += u64::from(exact.redid_merges);
                if exact.lost_one {
                    times.push(exact.elapsed);
                }
            }
            Err(error) => {
                eprintln!("seed {seed}: {error:#}");
                let Options { workers, bytes, .. } = options;
                eprintln!(
                    "  again: cargo xtask soak-kill --runs 1 --seed {seed} --workers {workers} --bytes {bytes}"
                );
                hangs += usize::from(error.is::<Hang>());
                failed.push(seed);
            }
        }
    }

    let exact = options.runs - failed.len() as u64;
    println!(
        "{exact} of {} results exact, {hangs} hangs, {} other failures",
        options.runs,
        failed.len() - hangs
    );
    println!(
        "in {hits} the reduction lost a worker before its end, in {redone} of them merges were done again"
    );
    println!("median time {:.1} ms undisturbed", usual.as_secs_f64() * 1e3);
    if !times.is_empty() {
        let slowest = times.iter().copied().max().unwrap_or_default();
        let (median, slowest) = (median(times).as_secs_f64() * 1e3, slowest.as_secs_f64() * 1e3);
        println!("median time {median:.1} ms with a loss, the longest {slowest:.1} ms");
    }
    if !failed.is_empty() {
        bail!("{} runs failed, with seeds {failed:?}", failed.len());
    }
    Ok(())
}

/// Who is to be killed, and how long after its contribution.
#[derive(Clone, Copy)]
struct Kill {
    victim: Rank,
    delay: Duration,
}

impl Kill {
    fn draw(seed: u64, workers: u32, usual: Duration) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let victim = Rank(1 + random.next_u32() % (workers - 1));
        let share = f64::from(random.next_u32()) / f64::from(u32::MAX);
        Self {
            victim,
            delay: usual.mul_f64(share),
        }
    }
}

/// A run whose result was exact.
struct Exact {
    /// How long the reduction took at the root.
    elapsed: Duration,
    /// Whether a worker was lost before its end.
    lost_one: bool,
    /// Whether work had to be done again for that.
    redid_merges: bool,
}

#[derive(Debug, Error)]
#[error("it hangs: not done after {} s", TIME_MAX.as_secs())]
struct Hang;

struct Soak {
    agent: PathBuf,
    worker: PathBuf,
    workers: u32,
    bytes: u64,
}

impl Soak {
    fn prepare(options: &Options) -> anyhow::Result<Self> {
        let words =
            "build --release --locked -p ropewalk --bin ropewalk -p ropewalk-reduce --example soak_worker";
        run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
        let release = project::target()?.join("release");
        Ok(Self {
            agent: release.join("ropewalk"),
            worker: release.join("examples/soak_worker"),
            workers: options.workers,
            bytes: options.bytes,
        })
    }

    fn run(&self, order: &str, kill: Option<Kill>) -> anyhow::Result<Exact> {
        let arguments = [&self.bytes.to_string(), "1", order].map(Into::into);
        let mut launcher = Launcher::start(JobSpec {
            arguments: arguments.into(),
            ranks: self.workers,
            on_failure: OnFailure::Continue,
            ..JobSpec::new(&self.agent, &self.worker)
        })?;
        let mut watch = Watch::new(kill);
        let verdict = loop {
            let Some(left) = watch.deadline.checked_duration_since(Instant::now()) else {
                // Dropping the launcher ends the job.
                bail!(
                    "hangs: not done after {} s; {}",
                    TIME_MAX.as_secs(),
                    watch.said.join("; ")
                );
            };
            if let Some(victim) = watch.due() {
                launcher.signal(victim, SIGKILL)?;
            }
            let until_kill = watch.until_kill().unwrap_or(left);
            match launcher.next_event(Some(left.min(until_kill)))? {
                Some(JobEvent::Finished(verdict)) => break verdict,
                Some(event) => watch.handle(event),
                None => {}
            }
        };
        drop(launcher);
        watch.judge(&verdict)
    }
}

/// What was seen of one run.
struct Watch {
    kill: Option<Kill>,
    kill_at: Option<Instant>,
    deadline: Instant,
    pids: Vec<u32>,
    said: Vec<String>,
}

impl Watch {
    fn new(kill: Option<Kill>) -> Self {
        Self {
            kill,
            kill_at: None,
            deadline: Instant::now() + TIME_MAX,
            pids: Vec::new(),
            said: Vec::new(),
        }
    }

    fn handle(&mut self, event: JobEvent) {
        match event {
            JobEvent::Started { pid, .. } => self.pids.push(pid),
            JobEvent::Output { line, .. } => {
                self.said
                    .push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            JobEvent::Trace {
                rank,
                event: TraceEvent::Mark { label, .. },
            } if label == "contributed" => {
                if let Some(kill) = self.kill.filter(|kill| kill.victim == rank) {
                    self.kill_at = Some(Instant::now() + kill.delay);
                }
            }
            _ => {}
        }
    }

    /// Who is to be killed now; once.
    fn due(&mut self) -> Option<Rank> {
        self.kill_at.take_if(|at| *at <= Instant::now())?;
        self.kill.map(|kill| kill.victim)
    }

    fn until_kill(&self) -> Option<Duration> {
        self.kill_at
            .map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn judge(&self, verdict: &Verdict) -> anyhow::Result<Exact> {
        let is_ours = |rank| self.kill.is_some_and(|kill| kill.victim == rank);
        let excused = |kind: &FailureKind| *kind == FailureKind::Signalled(SIGKILL);
        let failures = verdict.failures.iter();
        let mut unexcused = failures.filter(|failure| !(is_ours(failure.rank) && excused(&failure.kind)));
        if verdict.ending != Ending::Completed || unexcused.next().is_some() {
            bail!("{verdict}; {}", self.said.join("; "));
        }
        let [line] = &self.said[..] else {
            bail!("expected one line from the root, got {:?}", self.said);
        };
        self.check_that_nothing_is_left()?;
        parse(line).with_context(|| format!("the root says {line:?}"))
    }

    fn check_that_nothing_is_left(&self) -> anyhow::Result<()> {
        let end = Instant::now() + END_MAX;
        while let Some(pid) = self
            .pids
            .iter()
            .find(|pid| Path::new(&format!("/proc/{pid}")).exists())
        {
            if Instant::now() > end {
                bail!(
                    "process {pid} is left {} s after the end of its job",
                    END_MAX.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Reads `exact 0: 8 contributions, 7 merges, 1 redone, lost [Rank(3)], 12.345 ms`.
fn parse(line: &str) -> Option<Exact> {
    let fields: Vec<&str> = line.strip_prefix("exact 0: ")?.split(", ").collect();
    let redone: u64 = fields.get(2)?.strip_suffix(" redone")?.parse().ok()?;
    let milliseconds: f64 = fields.last()?.strip_suffix(" ms")?.parse().ok()?;
    Some(Exact {
        elapsed: Duration::try_from_secs_f64(milliseconds / 1e3).ok()?,
        lost_one: *fields.get(3)? != "lost []",
        redid_merges: redone > 0,
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

const SIGKILL: i32 = 9;
const ORDERS: [&str; 3] = ["any", "ordered", "paper"];
const CALIBRATIONS: usize = 9;
/// How long one run may take before it counts as a hang; a hundred times what it takes.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How long processes may stay after the end of their job.
const END_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// What the worker prints is understood, and nothing else is taken for it.
    #[test]
    fn reads_what_the_root_says() {
        let exact =
            parse("exact 0: 8 contributions, 112 merges, 3 redone, lost [Rank(3)], 12.500 ms").unwrap();
        assert_eq!(
            (exact.elapsed, exact.lost_one, exact.redid_merges),
            (Duration::from_micros(12_500), true, true)
        );
        assert!(
            !parse("exact 0: 8 contributions, 112 merges, 0 redone, lost [], 1 ms")
                .unwrap()
                .lost_one
        );
        assert!(parse("wrong 0: 8 contributions, 112 merges, 0 redone, lost [], 1 ms").is_none());
        assert!(parse("exact 0: ").is_none());
    }

    /// A seed gives the same victim at the same moment every time, and never the root.
    #[test]
    fn a_seed_replays_its_kill() {
        let usual = Duration::from_millis(50);
        for seed in 0..1000 {
            let (first, again) = (Kill::draw(seed, 3, usual), Kill::draw(seed, 3, usual));
            assert_eq!((first.victim, first.delay), (again.victim, again.delay));
            assert!(first.victim != Rank(0) && first.victim < Rank(3) && first.delay <= usual);
        }
    }
}
