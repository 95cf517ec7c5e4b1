//! One run of the migration, watched, with workers killed on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fmt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use indicatif::MultiProgress;
use ropewalk_fabric::{Progress, SpanKind, TraceEvent};
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
    /// How long after its call had returned; `None` if it had not called.
    pub(super) after_call: Option<Duration>,
    /// How many workers had called by then.
    pub(super) calls: usize,
    /// It came when the reduction had ended.
    pub(super) is_late: bool,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            pid,
            cause,
            after_call,
            calls,
            is_late,
            ..
        } = self;
        write!(f, "rank {rank} (pid {pid}) {cause}")?;
        let Some(after_call) = after_call else {
            return Ok(());
        };
        let milliseconds = after_call.as_secs_f64() * 1e3;
        write!(f, ",\n{milliseconds:.1} ms after its call,\n")?;
        match is_late {
            true => f.write_str("when the reduction had ended"),
            false => {
                let plural = if *calls == 1 { "" } else { "s" };
                write!(f, "when {calls} worker{plural} had called")
            }
        }
    }
}

/// Runs the migration of a survey on `workers` ranks. As many of them as `kills` says are killed: the first other than
/// rank 0 whose calls have returned, while others still migrate.
pub(super) fn watch(
    application: &Application,
    survey: &Path,
    out: &Path,
    workers: u32,
    kills: u32,
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
        kills,
        ..Seen::default()
    };
    while let Some(event) = launcher.next_event(None)? {
        seen.handle(&event, &launcher)?;
    }
    let elapsed = start.elapsed();
    seen.bars.clear().context("cannot clear the progress bars")?;
    let mut run = WatchedRun {
        summary: Summary::read(&seen.output)?,
        elapsed,
        traces: seen.traces,
        deaths: seen.deaths,
    };
    run.place_deaths();
    Ok(run)
}

impl WatchedRun {
    /// Where the deaths are among the calls, of which some were told later.
    fn place_deaths(&mut self) {
        let calls: BTreeMap<Rank, u64> = self.traces.iter().filter_map(contribution).collect();
        let end = self.reduction_span().map_or(u64::MAX, |(_, end)| end);
        for death in &mut self.deaths {
            let called = calls.get(&death.rank);
            death.after_call = called.map(|called| Duration::from_nanos(death.at_ns.saturating_sub(*called)));
            death.calls = calls.values().filter(|called| **called <= death.at_ns).count();
            death.is_late = death.at_ns >= end;
        }
    }

    /// From the last worker's call until the last call's end.
    pub(super) fn reduction(&self) -> Option<Duration> {
        let (start, end) = self.reduction_span()?;
        Some(Duration::from_nanos(end.saturating_sub(start)))
    }

    /// When the last worker called and when the last call ended.
    pub(super) fn reduction_span(&self) -> Option<(u64, u64)> {
        let calls = self.traces.iter().filter_map(contribution);
        let start = calls.map(|(_, at_ns)| at_ns).max()?;
        let ends = self.traces.iter().filter_map(|(_, event)| match event {
            TraceEvent::Span {
                kind: SpanKind::Call,
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
    /// How many workers are still to be killed.
    kills: u32,
    /// Who was killed.
    victims: BTreeSet<Rank>,
    pids: BTreeMap<Rank, u32>,
    traces: Vec<(Rank, TraceEvent)>,
    deaths: Vec<Death>,
    output: Vec<u8>,
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
        self.deaths.push(Death {
            rank,
            pid: self.pids.get(&rank).copied().unwrap_or_default(),
            cause,
            at_ns,
            after_call: None,
            calls: 0,
            is_late: false,
        });
    }
}

impl Watcher for Seen {
    fn handle(&mut self, event: &JobEvent, launcher: &Launcher) -> anyhow::Result<()> {
        match event {
            JobEvent::Started { rank, pid } => {
                self.pids.insert(*rank, *pid);
            }
            JobEvent::Trace { rank, event } => {
                self.trace(*rank, event);
                if has_contributed(event) && *rank != ROOT && self.kills > 0 {
                    self.kills -= 1;
                    self.victims.insert(*rank);
                    launcher.signal(*rank, SIGKILL)?;
                }
            }
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
                let is_victim = |rank| self.victims.contains(&rank);
                if verdict.failures.iter().any(|failure| !is_victim(failure.rank)) {
                    bail!("{verdict}");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// A worker whose call has returned, and when.
fn contribution((rank, event): &(Rank, TraceEvent)) -> Option<(Rank, u64)> {
    match event {
        TraceEvent::Mark { at_ns, .. } if has_contributed(event) => Some((*rank, *at_ns)),
        _ => None,
    }
}

fn has_contributed(event: &TraceEvent) -> bool {
    matches!(event, TraceEvent::Mark { label, .. } if label == "contributed")
}

/// The worker that gets the result.
const ROOT: Rank = Rank(0);

const SIGKILL: i32 = 9;
const TIME_MAX: Duration = Duration::from_secs(300);
/// Far more than a demo makes; a bound all the same.
const TRACES_MAX: usize = 1 << 20;
