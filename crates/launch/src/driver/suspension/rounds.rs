//! When a process that is to be suspended may be stopped: once all its runs are ready for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::protocol::SuspensionRound;

/// The suspensions of a process, one after another, and its runs, each with something by which it is told.
#[derive(Debug)]
pub(super) struct Rounds<T> {
    runs: BTreeMap<u64, Run<T>>,
    /// Those whose agents know.
    ready: BTreeSet<u64>,
    next: u64,
    wanted: SuspensionRound,
    over: SuspensionRound,
    /// When the latest was wanted, or a run came that has to get ready for it too.
    since: Option<Instant>,
    stopped: Duration,
}

#[derive(Debug)]
struct Run<T> {
    patience: Duration,
    teller: T,
}

/// What is to be done about a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Over,
    /// To stop this process.
    Stop,
    /// Runs are not ready, but may be until then.
    Wait(Instant),
}

impl<T> Rounds<T> {
    /// How much longer a run may take than it means to.
    const SLACK: Duration = Duration::from_secs(3);

    pub(super) const fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
            ready: BTreeSet::new(),
            next: 0,
            wanted: SuspensionRound(0),
            over: SuspensionRound(0),
            since: None,
            stopped: Duration::ZERO,
        }
    }

    /// A run that means to be ready `patience` after it is told. Returns its number.
    pub(super) fn add(&mut self, now: Instant, patience: Duration, teller: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.since = Some(now);
        self.runs.insert(number, Run { patience, teller });
        number
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.runs.remove(&number);
        self.ready.remove(&number);
    }

    pub(super) fn tellers(&self) -> impl Iterator<Item = &T> {
        self.runs.values().map(|run| &run.teller)
    }

    /// The suspension that is wanted, if one is.
    pub(super) fn wanted(&self) -> Option<SuspensionRound> {
        (self.wanted > self.over).then_some(self.wanted)
    }

    /// Another is wanted.
    pub(super) fn begin(&mut self, now: Instant) -> SuspensionRound {
        self.wanted.0 += 1;
        self.since = Some(now);
        self.wanted
    }

    /// A run that is late, and ready for one that is over, is not for the next.
    pub(super) fn set_ready(&mut self, number: u64, round: SuspensionRound) {
        if self.over < round {
            self.ready.insert(number);
        }
    }

    pub(super) fn step(&self, round: SuspensionRound, now: Instant) -> Step {
        if round <= self.over {
            return Step::Over;
        }
        let patience = self.runs.values().map(|run| run.patience).max();
        let until = self.since.unwrap_or(now) + patience.unwrap_or_default() + Self::SLACK;
        match self.ready.len() >= self.runs.len() || until <= now {
            true => Step::Stop,
            false => Step::Wait(until),
        }
    }

    /// A suspension is over, for which the process was `stopped`, or is called off.
    pub(super) fn end(&mut self, round: SuspensionRound, stopped: Duration) {
        if self.over < round {
            self.over = round;
            self.ready.clear();
            self.stopped += stopped;
        }
    }

    /// For how long the process was stopped, all in all.
    pub(super) fn stopped(&self) -> Duration {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// All runs are waited for, each for as long as it means to take at least.
    #[test]
    fn a_process_is_stopped_once_its_runs_are_ready() {
        let begun = Instant::now();
        let mut rounds = Rounds::new();
        let quick = rounds.add(begun, SECOND, ());
        let slow = rounds.add(begun, 120 * SECOND, ());
        let asked = begun + 1000 * SECOND;
        let round = rounds.begin(asked);
        rounds.set_ready(quick, round);
        let Step::Wait(until) = rounds.step(round, asked + 120 * SECOND) else {
            panic!("a run is not waited for");
        };
        assert_eq!(rounds.step(round, until), Step::Stop);
        rounds.set_ready(slow, round);
        assert_eq!(rounds.step(round, asked), Step::Stop);
        rounds.end(round, 7 * SECOND);
        assert_eq!(rounds.step(round, asked), Step::Over);
        assert_eq!((rounds.wanted(), rounds.stopped()), (None, 7 * SECOND));
    }

    /// Whoever is late for one suspension has to get ready for the next all the same.
    #[test]
    fn a_late_run_is_not_ready_for_the_next_suspension() {
        let now = Instant::now();
        let mut rounds = Rounds::new();
        let prompt = rounds.add(now, SECOND, ());
        let late = rounds.add(now, SECOND, ());
        let first = rounds.begin(now);
        rounds.set_ready(prompt, first);
        rounds.end(first, SECOND);
        rounds.set_ready(late, first);
        let second = rounds.begin(now);
        rounds.set_ready(prompt, second);
        assert!(matches!(rounds.step(second, now), Step::Wait(_)));
    }

    /// One that is called off stops nobody, also who is just getting ready.
    #[test]
    fn a_suspension_that_is_called_off_stops_nobody() {
        let now = Instant::now();
        let mut rounds = Rounds::new();
        let run = rounds.add(now, SECOND, ());
        let round = rounds.begin(now);
        rounds.end(round, Duration::ZERO);
        rounds.set_ready(run, round);
        assert_eq!(rounds.step(round, now), Step::Over);
        assert_eq!(rounds.stopped(), Duration::ZERO);
        assert_ne!(rounds.begin(now), round);
    }
}
