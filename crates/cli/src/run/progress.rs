//! One line on a terminal that says how far the job is. Whatever else is written there takes its place.

use std::{
    env,
    io::{self, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use ropewalk_launch::{JobEvent, JobSpec, Launcher};
use rustix::{
    process::getpgrp,
    termios::{tcgetpgrp, tcgetwinsize},
};

use super::saving::Saving;
use crate::watcher::Watcher;

/// How far a job is, and when that was last shown.
#[derive(Debug)]
pub(super) struct Progress {
    is_wanted: bool,
    began: Instant,
    next: Instant,
    counts: Counts,
}

/// The values that the line shows.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    agents: u32,
    hosts: u32,
    ranks: u32,
    running: u32,
    ended: u32,
    attempt: u32,
    /// When the next attempt begins, since the begin of the job.
    begins_at: Option<Duration>,
    saving: Option<Saving>,
}

/// True if the line stands on the terminal. Standard error is one for the whole process.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

impl Progress {
    /// Short jobs show nothing.
    const FIRST: Duration = Duration::from_millis(500);
    const INTERVAL: Duration = Duration::from_secs(1);

    /// The progress of a job, which is shown if standard error is a terminal on which nothing else tells of events.
    pub(super) fn new(spec: &JobSpec, tells_events: bool) -> Self {
        let began = Instant::now();
        let is_dumb = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
        Self {
            is_wanted: io::stderr().is_terminal() && !is_dumb && !tells_events,
            began,
            next: began + Self::FIRST,
            counts: Counts {
                ranks: spec.size(),
                ..Counts::default()
            },
        }
    }

    /// How long the next event may be waited for; `None` for as long as it takes.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.is_wanted
            .then(|| self.next.saturating_duration_since(Instant::now()))
    }

    /// Shows the line, if it is time and whatever was written before ended its own.
    pub(super) fn show(&mut self, is_at_line_start: bool) {
        let now = Instant::now();
        if !self.is_wanted || now < self.next {
            return;
        }
        self.next = now + Self::INTERVAL;
        let mut stderr = io::stderr().lock();
        // A job in the background would write over what its user types.
        let is_in_front = tcgetpgrp(&stderr).is_ok_and(|group| group == getpgrp());
        if !is_at_line_start || !is_in_front {
            return;
        }
        let columns = tcgetwinsize(&stderr).map_or(0, |size| usize::from(size.ws_col));
        // The last column stays free, so that no terminal begins another line.
        let columns = if columns == 0 { 79 } else { columns - 1 };
        let text: String = self.counts.line(now - self.began).chars().take(columns).collect();
        // It is a service, and nothing depends on it.
        let _ = write!(stderr, "\r{ERASE}{text}").and_then(|()| stderr.flush());
        IS_SHOWN.store(true, Ordering::Relaxed);
    }
}

impl Watcher for Progress {
    fn handle(&mut self, event: &JobEvent, _launcher: &Launcher) -> anyhow::Result<()> {
        self.counts.handle(event, self.began.elapsed());
        Ok(())
    }

    fn handle_saving(&mut self, saving: Saving, _turned: Option<Duration>) {
        self.counts.saving = Some(saving);
    }
}

/// Takes the line away, if it is there: to be called before anything else is written to the terminal.
pub(super) fn erase() {
    if IS_SHOWN.swap(false, Ordering::Relaxed) {
        let _ = write!(io::stderr(), "\r{ERASE}");
    }
}

/// From the cursor to the end of its line (ECMA-48, EL).
const ERASE: &str = "\x1b[K";

impl Counts {
    /// `now` is the time since the begin of the job.
    fn handle(&mut self, event: &JobEvent, now: Duration) {
        match event {
            JobEvent::Departed { .. } => {
                self.running = self.running.saturating_sub(1);
                self.ended += 1;
            }
            JobEvent::HostReady { ready, hosts, .. } => (self.agents, self.hosts) = (*ready, *hosts),
            JobEvent::Respawning { .. } => self.ended = self.ended.saturating_sub(1),
            JobEvent::Restarting { pause, .. } => {
                *self = Self {
                    hosts: self.hosts,
                    ranks: self.ranks,
                    attempt: self.attempt + 1,
                    begins_at: Some(now.saturating_add(*pause)),
                    saving: self.saving,
                    ..Self::default()
                }
            }
            JobEvent::Spawned { size, .. } => self.ranks = self.ranks.saturating_add(*size),
            JobEvent::Started { .. } => self.running += 1,
            _ => {}
        }
    }

    fn line(&self, lasted: Duration) -> String {
        let Self {
            agents,
            hosts,
            ranks,
            running,
            ended,
            attempt,
            begins_at,
            saving,
        } = *self;
        let mut parts = Vec::new();
        if attempt > 0 {
            parts.push(format!("attempt {}", attempt + 1));
        }
        let wait = begins_at.map_or(Duration::ZERO, |begins| begins.saturating_sub(lasted));
        if !wait.is_zero() {
            // No agent and no rank is there.
            parts.push(format!("starting again in {} s", seconds_up(wait)));
            parts.push(clock(lasted));
            return format!("ropewalk: {}", parts.join(", "));
        }
        if agents < hosts || hosts == 0 {
            parts.push(format!("{agents} of {} agents started", hosts.max(1)));
        }
        parts.push(format!("{running} of {ranks} ranks run"));
        if ended > 0 {
            parts.push(format!("{ended} ended"));
        }
        if let Some(saving) = saving {
            parts.push(format!("{} saves", saving.saves));
            if saving.failed > 0 {
                parts.push(format!("{} saves failed", saving.failed));
            }
            if let Some(since) = saving.unprotected_since {
                parts.push(format!("unprotected for {}", clock(lasted.saturating_sub(since))));
            }
        }
        parts.push(clock(lasted));
        format!("ropewalk: {}", parts.join(", "))
    }
}

fn seconds_up(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_launch::{Verdict, restart::Attempt};
    use ropewalk_names::Rank;

    use super::*;

    /// The line counts agents until all are there, ranks from their start to their end, and the time.
    #[test]
    fn a_line_counts_what_happened() {
        let mut counts = Counts {
            ranks: 3,
            ..Counts::default()
        };
        let line = |counts: &Counts, seconds| counts.line(Duration::from_secs(seconds));
        assert_eq!(
            line(&counts, 0),
            "ropewalk: 0 of 1 agents started, 0 of 3 ranks run, 0:00"
        );
        for ready in 1..=2 {
            let host = "h".to_owned();
            let event = JobEvent::HostReady {
                host,
                ready,
                hosts: 2,
            };
            counts.handle(&event, Duration::ZERO);
            if ready == 1 {
                assert_eq!(
                    line(&counts, 9),
                    "ropewalk: 1 of 2 agents started, 0 of 3 ranks run, 0:09"
                );
            }
        }
        for rank in (0..2).map(Rank) {
            counts.handle(&JobEvent::Started { rank, pid: 1 }, Duration::ZERO);
        }
        assert_eq!(line(&counts, 3_725), "ropewalk: 2 of 3 ranks run, 1:02:05");
        counts.saving = Some(Saving {
            saves: 2,
            failed: 7,
            saved_at: None,
            unprotected_since: Some(Duration::from_secs(60)),
        });
        assert_eq!(
            line(&counts, 101),
            "ropewalk: 2 of 3 ranks run, 2 saves, 7 saves failed, unprotected for 0:41, 1:41"
        );
    }

    /// Between two attempts the line counts the seconds down; then it tells of the next attempt.
    #[test]
    fn a_wait_is_counted_down() {
        let mut counts = Counts {
            hosts: 1,
            ranks: 3,
            ..Counts::default()
        };
        let event = JobEvent::Restarting {
            failed: Box::new(Attempt {
                number: 1,
                began: Duration::ZERO,
                lasted: Duration::from_secs(10),
                verdict: Verdict::new(3),
            }),
            pause: Duration::from_secs(3),
        };
        counts.handle(&event, Duration::from_secs(10));
        let lines = [10, 12, 13].map(|seconds| counts.line(Duration::from_secs(seconds)));
        assert_eq!(
            lines,
            [
                "ropewalk: attempt 2, starting again in 3 s, 0:10",
                "ropewalk: attempt 2, starting again in 1 s, 0:12",
                "ropewalk: attempt 2, 0 of 1 agents started, 0 of 3 ranks run, 0:13",
            ]
        );
    }
}
