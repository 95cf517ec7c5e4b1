//! Reductions in real processes, one of which is killed or stopped in the middle, again and again.

mod disturbance;

use std::{
    collections::VecDeque,
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use ropewalk_fabric::TraceEvent;
use ropewalk_launch::{
    Ending, Failure, FailureKind, JobEvent, JobSpec, Launcher, OnFailure, StartMethod, Verdict,
    hosts::parse_hosts,
};
use ropewalk_names::Rank;
use tempfile::TempDir;
use thiserror::Error;

use disturbance::{Disturbance, Moment};

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
    /// On how many hosts the processes are: names for this machine, each with an agent of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    hosts: u32,
    /// Stops a process and lets it go on, instead of killing one: for 0.1 to 3 seconds, in each fifteenth run for 10
    #[arg(long)]
    stop: bool,
    /// After how long a silent host counts as lost, in seconds
    #[arg(long, default_value_t = 3.0)]
    detect: f64,
    /// Where `ropewalk` and `examples/soak_worker` are, if they are not to be built
    #[arg(long)]
    built: Option<PathBuf>,
    /// Decides who is killed and when; by default the time. Run i has the seed SEED + i
    #[arg(long)]
    seed: Option<u64>,
}

impl Options {
    /// As short as it may be to say anything.
    pub(crate) fn short(hosts: u32) -> Self {
        Self {
            runs: 12,
            workers: 8,
            bytes: 8 << 20,
            hosts,
            stop: false,
            detect: 3.0,
            built: None,
            seed: None,
        }
    }

    /// The command that does one run again.
    fn again(&self, seed: u64) -> String {
        let Self {
            workers,
            bytes,
            hosts,
            stop,
            detect,
            ..
        } = self;
        let stop = if *stop { " --stop" } else { "" };
        format!(
            "cargo xtask soak-kill --runs 1 --seed {seed} --workers {workers} --bytes {bytes} --hosts {hosts} \
             --detect {detect}{stop}"
        )
    }
}

/// Runs reductions of which each loses one random worker, not the root, at a random moment between its
/// contribution and the expected end. Every result must be exact, and every run must end.
///
/// Or any worker is stopped at any moment of its life, and goes on after a while: then the result must be exact, or all
/// workers must get an error within seconds.
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
    eprintln!(
        "==> soak-kill: {} runs on {} hosts from seed {seed}",
        options.runs, options.hosts
    );

    let undisturbed = (0..CALIBRATIONS)
        .map(|at| {
            soak.run(ORDERS[at % ORDERS.len()], None)
                .and_then(|end| match end.judged {
                    Judged::Exact(exact) => Ok((exact.elapsed, end.elapsed)),
                    _ => bail!("no result"),
                })
        })
        .collect::<anyhow::Result<Vec<_>>>()
        .context("a run without any kill failed")?;
    let (reductions, jobs): (Vec<_>, Vec<_>) = undisturbed.into_iter().unzip();
    let (usual, usual_job) = (median(reductions), median(jobs));

    let (mut failed, mut hangs, mut hits, mut redone, mut times) = (Vec::new(), 0, 0, 0, Vec::new());
    let (mut errors, mut after_the_end) = (0, 0);
    for seed in (0..options.runs).map(|run| seed.wrapping_add(run)) {
        let order = ORDERS[(seed % ORDERS.len() as u64) as usize];
        let disturbance = match options.stop {
            true => Disturbance::draw_stop(seed, options.workers, usual_job),
            false => Disturbance::draw_kill(seed, options.workers, usual),
        };
        match soak.run(order, Some(disturbance)) {
            Ok(End {
                judged: Judged::Errors,
                ..
            }) => errors += 1,
            Ok(End {
                judged: Judged::KilledAfterTheEnd,
                ..
            }) => after_the_end += 1,
            Ok(End {
                judged: Judged::Exact(exact),
                ..
            }) => {
                hits += u64::from(exact.lost_one);
                redone += u64::from(exact.made_new_plan);
                if exact.lost_one {
                    times.push(exact.elapsed);
                }
            }
            Err(error) => {
                eprintln!("seed {seed}: {error:#}");
                eprintln!("  again: {}", options.again(seed));
                hangs += usize::from(error.is::<Hang>());
                failed.push(seed);
            }
        }
    }

    let exact = options.runs - failed.len() as u64 - errors - after_the_end;
    println!(
        "{exact} of {} results exact, {after_the_end} roots killed after the end, {errors} errors on all workers, \
         {hangs} hangs, {} other failures",
        options.runs,
        failed.len() - hangs
    );
    if !options.stop {
        println!(
            "in {hits} the reduction lost a worker before its end, in {redone} of them a new plan was made"
        );
    }
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

/// A run that ended well.
struct End {
    judged: Judged,
    /// How long the job took.
    elapsed: Duration,
}

enum Judged {
    Exact(Exact),
    /// All workers got an error, as they may if one of them was stopped.
    Errors,
    /// The root was killed when it had the result.
    KilledAfterTheEnd,
}

/// A result that was exact.
struct Exact {
    /// How long the reduction took at the root.
    elapsed: Duration,
    /// Whether a worker was lost before its end.
    lost_one: bool,
    /// A new plan was made for that.
    made_new_plan: bool,
}

#[derive(Debug, Error)]
#[error("it hangs: not done after {0:?}; {1}")]
struct Hang(Duration, String);

struct Soak {
    /// The executables are copies of this soak's own, so that what runs of them is its own too.
    folder: TempDir,
    agent: PathBuf,
    worker: PathBuf,
    workers: u32,
    bytes: u64,
    hosts: u32,
    detect: Duration,
}

impl Soak {
    fn prepare(options: &Options) -> anyhow::Result<Self> {
        let built = match &options.built {
            Some(built) => built.clone(),
            None => {
                let words = "build --release --locked -p ropewalk --bin ropewalk -p ropewalk-reduce \
                             --example soak_worker";
                run(cargo(&words.split(' ').collect::<Vec<_>>()))?;
                project::target()?.join("release")
            }
        };
        let folder = tempfile::tempdir()?;
        let copy = |name: &str, to: &str| -> anyhow::Result<PathBuf> {
            let to = folder.path().join(to);
            fs::copy(built.join(name), &to).with_context(|| format!("cannot copy {name}"))?;
            Ok(to)
        };
        Ok(Self {
            agent: copy("ropewalk", "ropewalk")?,
            worker: copy("examples/soak_worker", "soak_worker")?,
            folder,
            workers: options.workers,
            bytes: options.bytes,
            hosts: options.hosts.min(options.workers),
            detect: Duration::try_from_secs_f64(options.detect)?,
        })
    }

    fn run(&self, order: &str, disturbance: Option<Disturbance>) -> anyhow::Result<End> {
        let arguments = [&self.bytes.to_string(), "1", order].map(Into::into);
        let mut spec = JobSpec {
            arguments: arguments.into(),
            ranks: self.workers,
            on_failure: OnFailure::Continue,
            detect: self.detect,
            ..JobSpec::new(&self.agent, &self.worker)
        };
        if self.hosts > 1 {
            let slots = self.workers.div_ceil(self.hosts);
            let hosts: Vec<_> = (1..=self.hosts).map(|host| format!("h{host}:{slots}")).collect();
            spec.hosts = parse_hosts(&hosts.join(","))?;
            // As `-launcher fork` does.
            spec.method =
                StartMethod::Command(["sh", "-c", "shift; exec \"$@\"", "sh"].map(Into::into).into());
            spec.interface = Some(Ipv4Addr::LOCALHOST.into());
        }
        let begun = Instant::now();
        let mut launcher = Launcher::start(spec)?;
        let mut watch = Watch::new(disturbance);
        let verdict = loop {
            let Some(left) = watch.deadline.checked_duration_since(Instant::now()) else {
                // Dropping the launcher ends the job.
                return Err(Hang(begun.elapsed(), watch.said.join("; ")).into());
            };
            if let Some((victim, signal)) = watch.due() {
                launcher.signal(victim, signal)?;
            }
            let until_signal = watch.until_signal().unwrap_or(left);
            match launcher.next_event(Some(left.min(until_signal)))? {
                Some(JobEvent::Finished(verdict)) => break verdict,
                Some(event) => watch.handle(event),
                None => {}
            }
        };
        let elapsed = begun.elapsed();
        drop(launcher);
        let judged = watch.judge(&verdict, self.workers)?;
        self.check_that_nothing_is_left()?;
        Ok(End { judged, elapsed })
    }

    /// Neither workers nor agents.
    fn check_that_nothing_is_left(&self) -> anyhow::Result<()> {
        let end = Instant::now() + END_MAX;
        loop {
            let ours = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
            let is_ours = |path: &PathBuf| {
                fs::read_link(path.join("exe")).is_ok_and(|exe| exe.starts_with(self.folder.path()))
            };
            let Some(left) = ours.into_iter().find(is_ours) else {
                return Ok(());
            };
            if Instant::now() > end {
                bail!(
                    "{} is left {} s after the end of its job",
                    left.display(),
                    END_MAX.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What was seen of one run.
struct Watch {
    disturbance: Option<Disturbance>,
    /// The signals that the victim still gets.
    signals: VecDeque<(Instant, i32)>,
    deadline: Instant,
    said: Vec<String>,
}

impl Watch {
    fn new(disturbance: Option<Disturbance>) -> Self {
        let stopped = disturbance.map_or(Duration::ZERO, |disturbance| disturbance.stopped());
        Self {
            disturbance,
            signals: VecDeque::new(),
            deadline: Instant::now() + TIME_MAX + stopped,
            said: Vec::new(),
        }
    }

    fn handle(&mut self, event: JobEvent) {
        match event {
            JobEvent::Started { rank, .. } => self.begin(rank, Moment::Start),
            JobEvent::Output { line, .. } => {
                self.said
                    .push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            JobEvent::Trace {
                rank,
                event: TraceEvent::Mark { label, .. },
            } if label == "contributed" => self.begin(rank, Moment::Contribution),
            _ => {}
        }
    }

    fn begin(&mut self, rank: Rank, moment: Moment) {
        let Some(disturbance) = self.disturbance.filter(|disturbance| disturbance.victim == rank) else {
            return;
        };
        if disturbance.from == moment && self.signals.is_empty() {
            self.signals = disturbance.signals(Instant::now());
        }
    }

    /// Who gets which signal now; each once.
    fn due(&mut self) -> Option<(Rank, i32)> {
        let victim = self.disturbance?.victim;
        let (_, signal) = self.signals.pop_front_if(|(at, _)| *at <= Instant::now())?;
        Some((victim, signal))
    }

    fn until_signal(&self) -> Option<Duration> {
        let (at, _) = self.signals.front()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    fn judge(&self, verdict: &Verdict, workers: u32) -> anyhow::Result<Judged> {
        let disturbance = self.disturbance;
        let may_fail = disturbance.is_some_and(|disturbance| disturbance.stopped() > Duration::ZERO);
        let failed = |failure: &Failure| matches!(failure.kind, FailureKind::Exited(_));
        if verdict.ending == Ending::Completed
            && may_fail
            && verdict.failures.len() == workers as usize
            && verdict.failures.iter().all(failed)
        {
            return Ok(Judged::Errors);
        }
        let is_killed = |failure: &Failure| {
            failure.kind == FailureKind::Signalled(SIGKILL)
                && !may_fail
                && disturbance.is_some_and(|disturbance| disturbance.victim == failure.rank)
        };
        let mut unexcused = verdict.failures.iter().filter(|failure| !is_killed(failure));
        if verdict.ending != Ending::Completed || unexcused.next().is_some() {
            bail!("{verdict}; {}", self.said.join("; "));
        }
        let (told, lines): (Vec<&String>, Vec<&String>) =
            self.said.iter().partition(|line| line.starts_with("told "));
        let root_is_killed = disturbance.is_some_and(|disturbance| disturbance.victim == Rank(0));
        match lines[..] {
            [line] => {
                let exact = parse(line).with_context(|| format!("the root says {line:?}"))?;
                Ok(Judged::Exact(exact))
            }
            [] if root_is_killed && !told.is_empty() => Ok(Judged::KilledAfterTheEnd),
            _ => bail!("expected one line from the root, got {:?}", self.said),
        }
    }
}

/// Reads `exact 0: 8 contributions, 2 plans, lost [Rank(3)], 12.345 ms`.
fn parse(line: &str) -> Option<Exact> {
    let fields: Vec<&str> = line.strip_prefix("exact 0: ")?.split(", ").collect();
    let plans: u64 = fields.get(1)?.strip_suffix(" plans")?.parse().ok()?;
    let milliseconds: f64 = fields.last()?.strip_suffix(" ms")?.parse().ok()?;
    Some(Exact {
        elapsed: Duration::try_from_secs_f64(milliseconds / 1e3).ok()?,
        lost_one: *fields.get(2)? != "lost []",
        made_new_plan: plans > 1,
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

const SIGKILL: i32 = 9;
const ORDERS: [&str; 2] = ["any", "ordered"];
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
        let exact = parse("exact 0: 8 contributions, 3 plans, lost [Rank(3)], 12.500 ms").unwrap();
        assert_eq!(
            (exact.elapsed, exact.lost_one, exact.made_new_plan),
            (Duration::from_micros(12_500), true, true)
        );
        assert!(
            !parse("exact 0: 8 contributions, 1 plans, lost [], 1 ms")
                .unwrap()
                .lost_one
        );
        assert!(parse("wrong 0: 8 contributions, 1 plans, lost [], 1 ms").is_none());
        assert!(parse("exact 0: ").is_none());
    }
}
