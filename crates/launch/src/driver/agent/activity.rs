//! Whether the ranks of a host do anything: what `--stall` depends on.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::Agent;
use crate::protocol::Report;

/// What was seen of the ranks since the launcher was last told.
pub(super) struct Activity {
    /// How often is looked; not at all if nobody wants to know.
    interval: Option<Duration>,
    next: Instant,
    /// A request or output came.
    seen: bool,
    /// The processor time of the ranks and what they started, in clock ticks.
    ticks: u64,
}

impl Activity {
    /// So many looks fall into the time after which a job counts as stalled.
    const LOOKS: u32 = 4;
    /// The processor time is counted in hundredths of a second on most systems.
    const INTERVAL_MIN: Duration = Duration::from_millis(50);

    pub(super) fn new(stall: Option<Duration>) -> Self {
        Self {
            interval: stall.map(|stall| (stall / Self::LOOKS).max(Self::INTERVAL_MIN)),
            next: Instant::now(),
            seen: false,
            ticks: 0,
        }
    }

    pub(super) fn note(&mut self) {
        self.seen = true;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.interval.map(|_| self.next)
    }
}

impl Agent {
    /// Tells the launcher when ranks did something.
    pub(super) fn look_for_activity(&mut self) {
        let now = Instant::now();
        let Some(interval) = self.activity.interval.filter(|_| self.activity.next <= now) else {
            return;
        };
        self.activity.next = now + interval;
        let ticks = processor_ticks(|session| self.pids.contains_key(&session));
        let is_new = ticks != std::mem::replace(&mut self.activity.ticks, ticks);
        if std::mem::take(&mut self.activity.seen) || is_new {
            self.branch.report(Report::Active);
        }
    }
}

/// The processor time of all processes of some sessions. Ranks lead sessions of their own.
fn processor_ticks(is_ours: impl Fn(i32) -> bool) -> u64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    entries
        .filter(|entry| is_process(&entry.file_name()))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| ticks_of(&stat, &is_ours))
        .sum()
}

/// "PID (NAME) STATE PPID PGRP SESSION .. UTIME STIME ..", where the name may hold anything (proc(5)).
fn ticks_of(stat: &str, is_ours: impl Fn(i32) -> bool) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let session = fields.get(3)?.parse().ok()?;
    let time = |index: usize| fields.get(index)?.parse::<u64>().ok();
    is_ours(session).then_some(time(11)? + time(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times are those of the session's processes, whatever they are called.
    #[test]
    fn times_are_found() {
        let stat = "7 (a) S (b) R 1 7 42 0 -1 4194304 110 0 0 0 31 11 0 0 20 0 1 0 9 1 1";
        assert_eq!(ticks_of(stat, |session| session == 42), Some(42));
        assert_eq!(ticks_of(stat, |session| session == 7), None);
        assert_eq!(ticks_of("7 (a) S 1", |_| true), None);
    }
}
