//! The record of a job, for its report and its metrics.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_launch::{JobEvent, JobOutcome, OutputStream, Verdict, restart::Attempt};
use ropewalk_membership::Cause;
use ropewalk_names::{JobId, Rank, TraceEvent};

use super::{reductions::Reductions, saving::Saving};

/// The events of a job and their times, in bounded memory. Times are since the start of the launcher.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The identity of the job in its first attempt, from the first event on.
    pub(super) job: Option<JobId>,
    /// Every process, in the order of their starts.
    pub(super) lives: Vec<Life>,
    /// The process of each rank that runs.
    running: BTreeMap<Rank, usize>,
    pub(super) fences: Fences,
    pub(super) output: [Output; 2],
    /// The first of what was odd.
    pub(super) notices: Vec<(Duration, Rank, String)>,
    pub(super) notice_count: u64,
    /// How often a rank has failed and was to get another process.
    pub(super) respawns: u64,
    /// When the whole job was started again, and the attempt that failed before.
    pub(super) restarts: Vec<(Duration, Attempt)>,
    pub(super) outcome: Option<(Duration, JobOutcome)>,
    /// How saving goes, if it is seen to.
    pub(super) saving: Option<Saving>,
    pub(super) reductions: Reductions,
}

/// A process of a rank.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) rank: Rank,
    pub(super) host: String,
    pub(super) pid: u32,
    /// How often the whole job had been started again before it.
    pub(super) attempt: usize,
    pub(super) started: Duration,
    pub(super) ended: Option<(Duration, Cause)>,
    /// When signals stopped it, and when it went on.
    pub(super) stops: Vec<(Duration, Option<Duration>)>,
    pub(super) output_bytes: u64,
}

/// The fences of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct Fences {
    open: BTreeMap<(u32, String), Duration>,
    /// Those that took longest.
    pub(super) longest: Vec<Fence>,
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) waited: Duration,
}

/// A fence that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    /// When the first rank came.
    pub(super) began: Duration,
    /// When all went on.
    pub(super) ended: Duration,
    pub(super) name: String,
    pub(super) members: u32,
    pub(super) failed: Option<Rank>,
}

/// How much a stream carried, and when.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) bytes: u64,
    pub(super) lines: u64,
    /// The bytes of each stretch of time.
    pub(super) stretches: Vec<u64>,
    /// How long a stretch is.
    pub(super) stretch: Duration,
}

impl Record {
    const NOTICES_MAX: usize = 200;
    /// Of one process; who is stopped more often is seen to be.
    const STOPS_MAX: usize = 100;

    /// Takes an event. `host` is the name of the host of the event's rank.
    pub(super) fn handle(&mut self, now: Duration, event: &JobEvent, host: &str) {
        match event {
            JobEvent::Continued { rank, .. } => {
                if let Some(life) = self.life(*rank)
                    && let Some((_, end @ None)) = life.stops.last_mut()
                {
                    *end = Some(now);
                }
            }
            JobEvent::Departed { departure, .. } => {
                if let Some(life) = self.running.remove(&departure.rank) {
                    self.lives[life].ended = Some((now, departure.cause));
                }
            }
            JobEvent::FenceBegan { group, fence } => {
                self.fences.open.insert((*group, fence.clone()), now);
            }
            JobEvent::FenceEnded {
                group,
                fence,
                members,
                failed,
            } => self.fences.end(now, *group, fence, *members, *failed),
            JobEvent::Finished(outcome) => self.outcome = Some((now, outcome.clone())),
            JobEvent::Notice { rank, text } => {
                self.notice_count += 1;
                if self.notices.len() < Self::NOTICES_MAX {
                    self.notices.push((now, *rank, text.clone()));
                }
            }
            JobEvent::Output { rank, stream, line } => {
                self.output[usize::from(*stream == OutputStream::Stderr)].add(now, line);
                if let Some(life) = self.life(*rank) {
                    life.output_bytes += line.len() as u64;
                }
            }
            JobEvent::Respawning { .. } => self.respawns += 1,
            JobEvent::Restarting { failed, pause } => {
                // What did not tell of its end is gone with its agents.
                while let Some((rank, _)) = self.running.pop_first() {
                    self.reductions.begin(rank);
                }
                self.restarts.push((now + *pause, Attempt::clone(failed)));
            }
            JobEvent::Started { rank, pid } => {
                self.reductions.begin(*rank);
                self.running.insert(*rank, self.lives.len());
                self.lives.push(Life {
                    rank: *rank,
                    host: host.to_owned(),
                    pid: *pid,
                    attempt: self.restarts.len(),
                    started: now,
                    ended: None,
                    stops: Vec::new(),
                    output_bytes: 0,
                });
            }
            JobEvent::Stopped { rank, .. } => {
                if let Some(life) = self.life(*rank)
                    && life.stops.len() < Self::STOPS_MAX
                {
                    life.stops.push((now, None));
                }
            }
            JobEvent::Trace {
                rank,
                event: TraceEvent::Counters(counters),
            } => {
                if let Some(life) = self.running.get(rank) {
                    self.reductions.take(*rank, &self.lives[*life].host, counters);
                }
            }
            _ => {}
        }
    }

    /// How many ranks of the latest attempt are in each state on each host: by the last process of each rank.
    pub(super) fn states(&self) -> BTreeMap<(&str, &'static str), u64> {
        let mut counts = BTreeMap::new();
        let mut latest = BTreeMap::new();
        let attempt = self.lives.last().map_or(0, |life| life.attempt);
        for (index, life) in self.lives.iter().enumerate() {
            for state in STATES {
                counts.entry((life.host.as_str(), state)).or_default();
            }
            if life.attempt == attempt {
                latest.insert(life.rank, index);
            }
        }
        for index in latest.into_values() {
            let key = (self.lives[index].host.as_str(), self.state(index));
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    /// The state of a process, one of [`STATES`].
    fn state(&self, index: usize) -> &'static str {
        let life = &self.lives[index];
        match life.ended {
            Some((_, cause)) if cause.is_success() => "ended",
            None if self.running.get(&life.rank) == Some(&index) => {
                let last = life.stops.last();
                match last.is_some_and(|(_, end)| end.is_none()) {
                    true => "stopped",
                    false => "running",
                }
            }
            // Without an end it has gone with its agent.
            _ => "failed",
        }
    }

    /// How many processes ended in each way.
    pub(super) fn endings(&self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<_, _> = ["ok", "exit_code", "signal", "lost"].map(|kind| (kind, 0)).into();
        for (_, cause) in self.lives.iter().filter_map(|life| life.ended) {
            let kind = match cause {
                Cause::Exited(0) => "ok",
                Cause::Exited(_) => "exit_code",
                Cause::Signalled(_) => "signal",
                // The agent of its host was, and the process with it.
                _ => "lost",
            };
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// The verdict about an attempt, once it is over.
    pub(super) fn verdict_of(&self, attempt: usize) -> Option<&Verdict> {
        match self.restarts.get(attempt) {
            Some((_, failed)) => Some(&failed.verdict),
            None => self.outcome.as_ref().map(|(_, outcome)| &outcome.verdict),
        }
    }

    fn life(&mut self, rank: Rank) -> Option<&mut Life> {
        self.lives.get_mut(*self.running.get(&rank)?)
    }
}

impl Fences {
    const LONGEST_MAX: usize = 100;

    fn end(&mut self, now: Duration, group: u32, name: &str, members: u32, failed: Option<Rank>) {
        let began = self.open.remove(&(group, name.to_owned())).unwrap_or(now);
        self.count += 1;
        self.failed += u64::from(failed.is_some());
        self.waited += now - began;
        let fence = Fence {
            began,
            ended: now,
            name: match group {
                0 => name.to_owned(),
                group => format!("{name} of group {group}"),
            },
            members,
            failed,
        };
        let took = |fence: &Fence| fence.ended - fence.began;
        let place = self.longest.partition_point(|other| took(other) >= took(&fence));
        self.longest.insert(place, fence);
        self.longest.truncate(Self::LONGEST_MAX);
    }
}

impl Default for Output {
    fn default() -> Self {
        Self {
            bytes: 0,
            lines: 0,
            stretches: Vec::new(),
            stretch: Duration::from_millis(10),
        }
    }
}

impl Output {
    const STRETCHES_MAX: usize = 512;

    fn add(&mut self, now: Duration, line: &[u8]) {
        self.bytes += line.len() as u64;
        self.lines += u64::from(line.ends_with(b"\n"));
        let mut index = self.index(now);
        while index >= Self::STRETCHES_MAX {
            self.stretch *= 2;
            self.stretches = self.stretches.chunks(2).map(|pair| pair.iter().sum()).collect();
            index = self.index(now);
        }
        if self.stretches.len() <= index {
            self.stretches.resize(index + 1, 0);
        }
        self.stretches[index] += line.len() as u64;
    }

    fn index(&self, at: Duration) -> usize {
        (at.as_nanos() / self.stretch.as_nanos()) as usize
    }
}

/// The states of ranks: ended well; ended otherwise; running; stopped by a signal.
const STATES: [&str; 4] = ["ended", "failed", "running", "stopped"];

#[cfg(test)]
mod tests {
    use ropewalk_membership::Departure;
    use ropewalk_names::{Epoch, Incarnation};

    use super::*;

    /// A rank counts once, by its last process, on the host of that; after a restart of the job only the new ranks
    /// count.
    #[test]
    fn ranks_are_counted_by_state() {
        let mut record = Record::default();
        let start = |record: &mut Record, rank, host| {
            record.handle(
                HOUR,
                &JobEvent::Started {
                    rank: Rank(rank),
                    pid: 1,
                },
                host,
            );
        };
        let end = |record: &mut Record, rank, cause| {
            let departure = Departure {
                rank: Rank(rank),
                incarnation: Incarnation(0),
                epoch: Epoch(1),
                cause,
            };
            let event = JobEvent::Departed {
                departure,
                host: String::new(),
                pid: Some(1),
                at_ns: 0,
            };
            record.handle(HOUR, &event, "");
        };
        for (rank, host) in [(0, "a"), (1, "a"), (2, "b"), (3, "b")] {
            start(&mut record, rank, host);
        }
        end(&mut record, 0, Cause::Exited(0));
        end(&mut record, 2, Cause::Exited(1));
        end(&mut record, 3, Cause::Signalled(9));
        start(&mut record, 3, "a");
        let counts = |record: &Record| {
            let states = record.states();
            ["a", "b"].map(|host| STATES.map(|state| states.get(&(host, state)).copied()))
        };
        let some = |counts: [u64; 4]| counts.map(Some);
        assert_eq!(counts(&record), [some([1, 0, 2, 0]), some([0, 1, 0, 0])]);
        let failed = Attempt {
            number: 1,
            began: Duration::ZERO,
            lasted: HOUR,
            verdict: Verdict::new(4),
        };
        let restarting = JobEvent::Restarting {
            failed: Box::new(failed),
            pause: HOUR,
        };
        record.handle(HOUR, &restarting, "");
        assert_eq!(counts(&record), [some([1, 2, 0, 0]), some([0, 1, 0, 0])]);
        start(&mut record, 0, "b");
        assert_eq!(counts(&record), [some([0; 4]), some([0, 0, 1, 0])]);
    }

    const HOUR: Duration = Duration::from_secs(3600);

    /// However long a job writes, all its bytes are shown, in a bounded number of stretches.
    #[test]
    fn output_is_counted_in_bounded_memory() {
        let mut output = Output::default();
        for minute in 0..10_000 {
            output.add(HOUR * minute / 60, b"line\n");
        }
        assert_eq!((output.bytes, output.lines), (50_000, 10_000));
        assert_eq!(output.stretches.iter().sum::<u64>(), 50_000);
        assert!(output.stretches.len() <= Output::STRETCHES_MAX);
        assert!(output.stretches.len() > Output::STRETCHES_MAX / 3);
    }

    /// A rank may have several processes, one after the other, each with its end.
    #[test]
    fn lives_are_told_apart() {
        let mut record = Record::default();
        for pid in [7, 8] {
            let rank = Rank(3);
            record.handle(HOUR, &JobEvent::Started { rank, pid }, "node");
            let signal = 19;
            let host = "node".to_owned();
            record.handle(
                HOUR,
                &JobEvent::Stopped {
                    rank,
                    host: host.clone(),
                    pid,
                    signal,
                },
                "node",
            );
            assert_eq!(record.states()[&("node", "stopped")], 1);
            record.handle(HOUR * 2, &JobEvent::Continued { rank, host }, "node");
            assert_eq!(record.states()[&("node", "running")], 1);
            if pid == 7 {
                record.running.remove(&rank);
            }
        }
        let pids: Vec<_> = record.lives.iter().map(|life| life.pid).collect();
        assert_eq!(pids, [7, 8]);
        assert_eq!(record.lives[0].stops, [(HOUR, Some(HOUR * 2))]);
    }

    /// The longest fences are kept, the others only counted.
    #[test]
    fn the_longest_fences_are_kept() {
        let mut record = Record::default();
        for second in 0..300 {
            let (group, fence) = (0, "WORLD".to_owned());
            let began = JobEvent::FenceBegan {
                group,
                fence: fence.clone(),
            };
            record.handle(HOUR, &began, "");
            let ended = JobEvent::FenceEnded {
                group,
                fence,
                members: 2,
                failed: None,
            };
            record.handle(HOUR + Duration::from_secs(second), &ended, "");
        }
        let fences = record.fences;
        assert_eq!((fences.count, fences.longest.len()), (300, Fences::LONGEST_MAX));
        assert_eq!(fences.longest[0].ended - HOUR, Duration::from_secs(299));
        assert_eq!(fences.longest[99].ended - HOUR, Duration::from_secs(200));
        assert_eq!(fences.waited, Duration::from_secs(299 * 300 / 2));
    }
}
