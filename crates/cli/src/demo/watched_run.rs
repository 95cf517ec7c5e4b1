//! One run of the migration, watched, with workers killed on the way.

use std::{
    collections::BTreeMap,
    env, fmt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use indicatif::MultiProgress;
use ropewalk_fabric::{Progress, TraceEvent};
use ropewalk_launch::{JobEvent, JobOutcome, JobSpec, Launcher, OnFailure, OutputStream, Segment};
use ropewalk_membership::Cause;
use ropewalk_names::Rank;

use super::{
    application::{Application, Summary},
    bar,
};
use crate::watcher::Watcher;

/// The observations of a run.
#[derive(Debug)]
pub(super) struct WatchedRun {
    pub(super) summary: Summary,
    pub(super) elapsed: Duration,
    pub(super) traces: Vec<(Rank, TraceEvent)>,
    pub(super) deaths: Vec<Death>,
}

/// A worker that was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) rank: Rank,
    pub(super) pid: u32,
    pub(super) cause: Cause,
    pub(super) at_ns: u64,
    /// How long after the last worker had called reduce.
    pub(super) into_reduction: Duration,
    /// How many stripes of how many were finished when the kill was ordered.
    pub(super) stripes: (u64, u64),
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            pid,
            cause,
            into_reduction,
            stripes,
            ..
        } = self;
        let milliseconds = into_reduction.as_secs_f64() * 1e3;
        write!(
            f,
            "rank {rank} (pid {pid}) {cause},\n{milliseconds:.1} ms into the reduction,\n"
        )?;
        write!(f, "{} of {} stripes finished", stripes.0, stripes.1)
    }
}

/// Runs the migration of a survey on `workers` ranks, and kills the victims once the reduction is under way.
pub(super) fn watch(
    application: &Application,
    survey: &Path,
    out: &Path,
    workers: u32,
    victims: Vec<u32>,
) -> anyhow::Result<WatchedRun> {
    let agent = env::current_exe().context("cannot find my own executable")?;
    let program = Segment {
        arguments: Application::worker_words(survey, out),
        ranks: workers,
        environment: vec![("ROPEWALK_TRACE".into(), "1".into())],
        ..Segment::new(&application.path)
    };
    let mut spec = JobSpec {
        reactions: OnFailure::Continue.into(),
        forward_signals: true,
        ..JobSpec::new(agent, program)
    };
    spec.time_limits.timeout = Some(TIME_MAX);
    let start = Instant::now();
    let mut launcher = Launcher::start(spec)?;
    let mut seen = Seen {
        victims,
        ..Seen::default()
    };
    while let Some(event) = launcher.next_event(None)? {
        seen.handle(&event, &launcher)?;
    }
    let elapsed = start.elapsed();
    seen.bars.clear().context("cannot clear the progress bars")?;
    Ok(WatchedRun {
        summary: Summary::read(&seen.output)?,
        elapsed,
        traces: seen.traces,
        deaths: seen.deaths,
    })
}

impl WatchedRun {
    /// From the last worker's call until the last stripe was finished.
    pub(super) fn reduction(&self) -> Option<Duration> {
        let (start, end) = self.reduction_span()?;
        Some(Duration::from_nanos(end.saturating_sub(start)))
    }

    /// When the last worker called and when the last merge was done.
    pub(super) fn reduction_span(&self) -> Option<(u64, u64)> {
        let start = last_call(&self.traces)?;
        let ends = self.traces.iter().filter_map(|(_, event)| match event {
            TraceEvent::Span {
                kind: ropewalk_fabric::SpanKind::Merge,
                end_ns,
                ..
            } => Some(*end_ns),
            _ => None,
        });
        Some((start, ends.max()?))
    }

    /// The number of plans that the reduction needed, as its receipt says.
    pub(super) fn plans(&self) -> String {
        let receipt = self.summary.receipt.as_ref();
        receipt.map_or_else(String::new, |receipt| receipt.plans.to_string())
    }
}

/// The observations that are collected while a run goes on.
#[derive(Default)]
struct Seen {
    /// Who is killed as soon as the reduction has begun.
    victims: Vec<u32>,
    pids: BTreeMap<Rank, u32>,
    traces: Vec<(Rank, TraceEvent)>,
    deaths: Vec<Death>,
    output: Vec<u8>,
    stripes: (u64, u64),
    migrated: BTreeMap<Rank, (u64, u64)>,
    bars: MultiProgress,
    migrate_bar: Option<indicatif::ProgressBar>,
    reduce_bar: Option<indicatif::ProgressBar>,
}

impl Seen {
    fn trace(&mut self, rank: Rank, event: &TraceEvent) {
        if let TraceEvent::Progress(Progress { label, done, total }) = event {
            self.progress(rank, label, *done, *total);
        }
        if self.traces.len() < TRACES_MAX {
            self.traces.push((rank, event.clone()));
        }
    }

    fn progress(&mut self, rank: Rank, label: &str, done: u64, total: u64) {
        let (slot, name, done, total) = if label.starts_with("reduction") {
            self.stripes = (done, total);
            (&mut self.reduce_bar, "reducing", done, total)
        } else {
            self.migrated.insert(rank, (done, total));
            let sum = self
                .migrated
                .values()
                .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (&mut self.migrate_bar, "migrating", sum.0, sum.1)
        };
        let bar = slot.get_or_insert_with(|| self.bars.add(bar(name, total)));
        bar.set_length(total);
        bar.set_position(done);
    }

    fn death(&mut self, rank: Rank, cause: Cause, at_ns: u64) {
        let into_reduction = at_ns.saturating_sub(last_call(&self.traces).unwrap_or(at_ns));
        self.deaths.push(Death {
            rank,
            pid: self.pids.get(&rank).copied().unwrap_or_default(),
            cause,
            at_ns,
            into_reduction: Duration::from_nanos(into_reduction),
            stripes: self.stripes,
        });
    }
}

impl Watcher for Seen {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        match event {
            JobEvent::Started { rank, pid } => {
                self.pids.insert(*rank, *pid);
            }
            JobEvent::Trace { rank, event } => self.trace(*rank, event),
            JobEvent::Departed { departure, at_ns, .. } if !departure.cause.is_success() => {
                self.death(departure.rank, departure.cause, *at_ns);
            }
            JobEvent::Output {
                stream: OutputStream::Stdout,
                line,
                ..
            } => self.output.extend(line),
            JobEvent::Output { rank, line, .. } => {
                eprint!("[{rank}] {}", String::from_utf8_lossy(line));
            }
            JobEvent::Finished(JobOutcome { verdict, .. }) => {
                let is_victim = |rank| self.deaths.iter().any(|death| death.rank == rank);
                if verdict.failures.iter().any(|failure| !is_victim(failure.rank)) {
                    bail!("{verdict}");
                }
            }
            _ => {}
        }
        if self.stripes.0 > 0 {
            for victim in self.victims.drain(..) {
                launcher.signal(Rank(victim), SIGKILL)?;
            }
        }
        Ok(())
    }
}

/// When the last worker called reduce.
fn last_call(traces: &[(Rank, TraceEvent)]) -> Option<u64> {
    let calls = traces.iter().filter_map(|(_, event)| match event {
        TraceEvent::Mark { label, at_ns } if label == "contributed" => Some(*at_ns),
        _ => None,
    });
    calls.max()
}

const SIGKILL: i32 = 9;
const TIME_MAX: Duration = Duration::from_secs(300);
/// Far more than a demo makes; a bound all the same.
const TRACES_MAX: usize = 1 << 20;
