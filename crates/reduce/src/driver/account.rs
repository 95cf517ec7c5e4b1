//! The counters of this rank's reductions, for those who watch its job.

use std::time::{Duration, Instant};

use postcard::ser_flavors::Size;
use ropewalk_fabric::{ReductionCounters, TraceEvent};
use ropewalk_names::SchedulerLoad;
use serde::Serialize;

use super::progress::ProgressThread;

/// The counters that nobody else has, and when the agent was told of all of them.
#[derive(Debug)]
pub(super) struct Account {
    /// Somebody watches the job.
    is_wanted: bool,
    /// The counters of the epochs before this one.
    before: ReductionCounters,
    /// Reductions that have ended here since the agent was told.
    news: u64,
    tell_at: Option<Instant>,
}

impl Account {
    /// The environment variable that asks, if it is `1`, for the counters. `ropewalk run` sets it for `--metrics` and
    /// `--report`.
    const VARIABLE: &str = "ROPEWALK_COUNTERS";
    /// The agent is told once in so long, as each message wakes it and the launcher.
    const PERIOD: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Self {
        Self {
            is_wanted: std::env::var_os(Self::VARIABLE).is_some_and(|value| value == "1"),
            before: ReductionCounters::default(),
            news: 0,
            tell_at: None,
        }
    }

    /// A reduction has ended on this rank.
    pub(super) fn note_end(&mut self) {
        self.news += 1;
        self.before.reductions += 1;
    }

    /// When to tell the agent, if there is anything to tell.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let has_news = self.is_wanted && self.news > 0;
        has_news.then(|| self.tell_at.unwrap_or(now))
    }

    /// Says if it is time to tell the agent, and takes that as done.
    fn take_turn(&mut self, now: Instant) -> bool {
        let is_due = self.next_deadline(now).is_some_and(|at| at <= now);
        if is_due {
            (self.news, self.tell_at) = (0, Some(now + Self::PERIOD));
        }
        is_due
    }
}

impl ProgressThread {
    /// Tells the agent of the counters when it is time.
    pub(super) fn tell_counters(&mut self) {
        if self.account.take_turn(Instant::now()) {
            let counters = self.counters();
            self.shared.tracer.send(TraceEvent::Counters(counters));
        }
    }

    /// Tells the agent of what it has not been told: this rank leaves.
    pub(super) fn tell_last_counters(&mut self) {
        self.account.tell_at = None;
        self.tell_counters();
    }

    /// Worker, rates and scheduler begin anew.
    pub(super) fn carry_counters(&mut self) {
        self.account.before = self.counters();
    }

    fn counters(&self) -> ReductionCounters {
        let (before, sends) = (self.account.before, self.rates.counters());
        let (send_rate, receive_rate) = self.rates.totals();
        let load = self
            .seat
            .as_ref()
            .map_or_else(SchedulerLoad::default, |seat| seat.load());
        ReductionCounters {
            reductions: before.reductions,
            chunks: before.chunks + sends.chunks,
            chunk_bytes: before.chunk_bytes + sends.bytes,
            send_time: before.send_time + sends.send_time,
            wait_time: before.wait_time + sends.wait_time,
            last_send_time: sends.last_send_time,
            queue_max: before.queue_max.max(sends.queue_max),
            send_rate: send_rate as u64,
            receive_rate: receive_rate as u64,
            scheduler: before.scheduler + load,
        }
    }
}

/// The bytes of a message as it is sent.
pub(super) fn encoded_bytes(message: &impl Serialize) -> u64 {
    postcard::serialize_with_flavor(message, Size::default()).map_or(0, |bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The agent is told of the first end at once and of later ones once a second; never if nobody watches.
    #[test]
    fn the_agent_is_told_once_a_second() {
        let mut account = Account {
            is_wanted: true,
            ..Account::new()
        };
        let begun = Instant::now();
        assert_eq!(account.next_deadline(begun), None);
        account.note_end();
        assert!(account.take_turn(begun));
        assert_eq!(account.next_deadline(begun), None);
        account.note_end();
        let next = begun + Account::PERIOD;
        assert_eq!(account.next_deadline(begun), Some(next));
        assert!(!account.take_turn(begun));
        assert!(account.take_turn(next));
        assert_eq!(account.before.reductions, 2);
        account.is_wanted = false;
        account.note_end();
        assert_eq!(account.next_deadline(next), None);
    }

    /// The length is that of the encoding.
    #[test]
    fn messages_are_measured() {
        let message = (7_u64, vec![1_u8; 300], "text");
        let encoded = postcard::to_allocvec(&message).unwrap();
        assert_eq!(encoded_bytes(&message), encoded.len() as u64);
    }
}
