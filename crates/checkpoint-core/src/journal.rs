//! The memory of a run over its restarts: how long it ran, how often it failed, how long saves took.

mod lines;
mod note;
#[cfg(test)]
mod tests;
mod totals;

use std::fmt::Write;

use crate::advisor::Level;

pub use note::{COMMAND_BITS, Note};
pub use totals::{Failing, Totals};

/// One line of a journal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record {
    /// A start of the program; who starts it knows it by this number. A start while another is open says that the other
    /// failed, unless it has the same number.
    Start {
        /// The number of the start.
        start: u64,
    },
    /// The program ran for so many seconds more.
    Ran {
        /// Seconds.
        seconds: f64,
    },
    /// All before this is saved or restored.
    Safe,
    /// One time step took so many seconds.
    Step {
        /// Seconds.
        seconds: f64,
    },
    /// So many steps ended in the time that the record before this one tells of.
    Steps {
        /// How many.
        count: u64,
    },
    /// A save failed after so many seconds.
    NotSaved {
        /// Of which kind.
        level: Level,
        /// Seconds.
        seconds: f64,
    },
    /// So many saves failed in a row, which were counted before.
    Failing {
        /// How many.
        count: u64,
    },
    /// The slowest rank needed so many seconds longer for the last save than the rank that measured it.
    SaveLonger {
        /// Of which kind.
        level: Level,
        /// Seconds.
        seconds: f64,
    },
    /// A save took so many seconds.
    Saved {
        /// Of which kind.
        level: Level,
        /// Seconds.
        seconds: f64,
    },
    /// A save has all it needs, for which the program waited so many seconds, and is written in the background.
    Copied {
        /// Of which kind.
        level: Level,
        /// Seconds.
        seconds: f64,
    },
    /// The save that was copied last protects.
    Committed,
    /// A save that was written in the background protected so many seconds after it had all it needs.
    CommitTime {
        /// Of which kind.
        level: Level,
        /// Seconds.
        seconds: f64,
    },
    /// A full save was copied to another host.
    CopyTime {
        /// Seconds, from the save on.
        seconds: f64,
        /// By how many seconds steps were longer meanwhile.
        slowdown: f64,
    },
    /// A restore took so many seconds.
    Restored {
        /// Seconds.
        seconds: f64,
    },
    /// The time of an earlier save, which was counted before.
    SaveTime {
        /// Of which kind.
        level: Level,
        /// Seconds.
        seconds: f64,
    },
    /// The time of an earlier step since the last save, which was counted before.
    StepTime {
        /// Seconds.
        seconds: f64,
    },
    /// The time of an earlier restore, which was counted before.
    RestoreTime {
        /// Seconds.
        seconds: f64,
    },
    /// The program failed after so many seconds, as who has started it knows.
    Failed {
        /// Seconds since the start.
        ran: f64,
    },
    /// The program ended after so many seconds as it did before, at the same step. That is a fault of its
    /// own, which says nothing about how often the machine fails.
    Repeated {
        /// Seconds since the start.
        ran: f64,
    },
    /// The failure that is noted too was the loss of a host with all that was on it.
    HostLost,
    /// The program came to its end, or was stopped on purpose.
    Ended,
    /// All that was before, in short.
    Before(Totals),
    /// A remark.
    Note(Note),
}

/// The content of a journal. Its memory is bounded, however long the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    totals: Totals,
    open: Option<OpenStart>,
    /// The save of the open start that is being written.
    copied: Option<Copied>,
    /// The last saves of each level, the last one last.
    saves: [Vec<f64>; 2],
    /// How long after that those protected that were written in the background.
    commits: [Vec<f64>; 2],
    /// The last copies on another host: how long each took, and by how much it made steps longer.
    copies: Vec<(f64, f64)>,
    restore: Option<f64>,
    /// The steps since the last save: if the program failed they will be done again.
    steps: Vec<f64>,
    /// True if the steps are those of an earlier start.
    steps_are_old: bool,
    notes: note::Notes,
    /// How many saves failed since the last good one.
    failing: u64,
    /// The last start ended while saves failed.
    ended_failing: Option<Failing>,
    unreadable: u64,
}

/// A start whose end is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OpenStart {
    start: u64,
    ran: f64,
    /// The last time between two records: when it failed, half of that had passed on average.
    last: f64,
    /// How long it ran since the last save or restore.
    unsaved: f64,
    /// How many steps it has done, and how many of them are saved.
    done: u64,
    saved: u64,
}

/// A save that is being written.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Copied {
    level: Level,
    seconds: f64,
    /// How many of the known steps are in it.
    steps: usize,
    /// How long the start had run then since the save before.
    unsaved: f64,
    /// How many steps the start had done then.
    done: u64,
}

impl History {
    /// Reads a journal. Lines that were cut off or changed are passed over.
    pub fn read(journal: &[u8]) -> Self {
        let mut history = Self::default();
        let lines = journal
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty());
        for line in lines {
            match Record::parse(line) {
                Some(record) => history.add(record),
                None => history.unreadable += 1,
            }
        }
        history
    }

    /// Takes one more record into account.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Start { start } => self.started(start),
            Record::Ran { seconds } => self.ran(seconds),
            Record::Step { seconds } => {
                self.ran(seconds);
                self.step_took(seconds);
                self.did(1);
            }
            Record::Steps { count } => self.did(count),
            Record::NotSaved { seconds, .. } => {
                self.ran(seconds);
                self.totals.failed_saves = self.totals.failed_saves.saturating_add(1);
                self.failing = self.failing.saturating_add(1);
            }
            Record::Failing { count } => self.failing = count,
            Record::SaveLonger { level, seconds } => {
                self.ran(seconds);
                self.totals.save_seconds += seconds;
                if let Some(last) = self.saves[level as usize].last_mut() {
                    *last = (*last + seconds).min(SECONDS_MAX);
                }
            }
            Record::Safe => {
                self.copied = None;
                self.is_safe_now();
            }
            Record::StepTime { seconds } => self.step_took(seconds),
            Record::Saved { level, seconds } => self.saved(level, seconds),
            Record::CommitTime { level, seconds } => keep_last(&mut self.commits[level as usize], seconds),
            Record::CopyTime { seconds, slowdown } => keep_last(&mut self.copies, (seconds, slowdown)),
            Record::Copied { level, seconds } => {
                self.ran(seconds);
                self.copied = self.open.map(|open| Copied {
                    level,
                    seconds,
                    steps: if self.steps_are_old { 0 } else { self.steps.len() },
                    unsaved: open.unsaved,
                    done: open.done,
                });
            }
            Record::Committed => self.committed(),
            Record::SaveTime { level, seconds } => keep_last(&mut self.saves[level as usize], seconds),
            Record::RestoreTime { seconds } => self.restore = Some(seconds),
            Record::Restored { seconds } => self.restored(seconds),
            Record::Failed { ran } => self.ended_by_failure(ran, true),
            Record::Repeated { ran } => self.ended_by_failure(ran, false),
            Record::HostLost => self.totals.hosts_lost = self.totals.hosts_lost.saturating_add(1),
            Record::Ended => {
                self.copied = None;
                self.ended_failing = self.failing();
                self.totals.exposure += self.open.take().map_or(0.0, |open| open.ran);
                self.steps.clear();
            }
            Record::Before(totals) => self.totals.add(&totals),
            Record::Note(note) => self.note(note),
        }
    }

    /// A start begins. If the end of the one before is not known, it failed.
    fn started(&mut self, start: u64) {
        if self.open.is_some_and(|open| open.start == start) {
            return;
        }
        self.copied = None;
        if let Some(open) = self.open.take() {
            self.failed(open, open.ran + open.last / 2.0, true);
        }
        self.steps_are_old = true;
        self.failing = 0;
        self.ended_failing = None;
        self.open = Some(OpenStart {
            start,
            ran: 0.0,
            last: 0.0,
            unsaved: 0.0,
            done: 0,
            saved: 0,
        });
    }

    /// A save is whole that kept the program waiting to its end.
    fn saved(&mut self, level: Level, seconds: f64) {
        self.ran(seconds);
        self.steps.clear();
        self.copied = None;
        self.is_safe_now();
        self.totals.saves = self.totals.saves.saturating_add(1);
        self.totals.save_seconds += seconds;
        keep_last(&mut self.saves[level as usize], seconds);
        // It was not written in the background, and so the next will not be.
        self.commits[level as usize].clear();
    }

    /// The save that was copied last is whole.
    fn committed(&mut self) {
        let Some(copied) = self.copied.take() else { return };
        // Steps of a start before are all older than the save.
        let saved = if self.steps_are_old {
            self.steps.len()
        } else {
            copied.steps
        };
        self.steps.drain(..saved.min(self.steps.len()));
        if let Some(open) = &mut self.open {
            open.unsaved = (open.unsaved - copied.unsaved).max(0.0);
            open.saved = copied.done;
        }
        self.failing = 0;
        self.totals.saves = self.totals.saves.saturating_add(1);
        self.totals.save_seconds += copied.seconds;
        keep_last(&mut self.saves[copied.level as usize], copied.seconds);
    }

    /// The program went back to its last save.
    fn restored(&mut self, seconds: f64) {
        self.ran(seconds);
        self.restore = Some(seconds);
        self.steps.clear();
        self.copied = None;
        if let Some(open) = &mut self.open {
            // The others are done again.
            open.done = open.saved;
        }
        self.is_safe_now();
        self.totals.restores = self.totals.restores.saturating_add(1);
        self.totals.restore_seconds += seconds;
    }

    fn ended_by_failure(&mut self, ran: f64, counts: bool) {
        self.copied = None;
        match self.open.take() {
            Some(open) => self.failed(open, ran.max(open.ran), counts),
            None => {
                self.totals.exposure += ran;
                self.totals.failures = self.totals.failures.saturating_add(u64::from(counts));
                self.totals.lost += ran;
            }
        }
    }

    /// A start is over that ran for so many seconds. Its failure counts, or is one that was counted before.
    fn failed(&mut self, open: OpenStart, ran: f64, counts: bool) {
        let unsaved = open.unsaved + (ran - open.ran);
        self.ended_failing = (self.failing > 0).then_some(Failing {
            count: self.failing,
            unprotected: unsaved,
        });
        self.totals.exposure += ran;
        self.totals.failures = self.totals.failures.saturating_add(u64::from(counts));
        self.totals.lost += unsaved;
    }

    fn is_safe_now(&mut self) {
        self.failing = 0;
        if let Some(open) = &mut self.open {
            open.unsaved = 0.0;
            open.saved = open.done;
        }
    }

    fn did(&mut self, steps: u64) {
        if let Some(open) = &mut self.open {
            open.done = open.done.saturating_add(steps);
        }
    }

    fn step_took(&mut self, seconds: f64) {
        if std::mem::take(&mut self.steps_are_old) {
            self.steps.clear();
        }
        if self.steps.len() < STEPS_MAX {
            self.steps.push(seconds);
        }
    }

    fn ran(&mut self, seconds: f64) {
        match &mut self.open {
            Some(open) => {
                open.ran += seconds;
                open.unsaved += seconds;
                open.last = seconds;
            }
            None => self.totals.exposure += seconds,
        }
    }

    /// A journal that says the same in a few lines.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut line = |record: Record| {
            let _ = text.write_str(&record.encode());
        };
        for level in [Level::Fast, Level::Full] {
            for &seconds in &self.saves[level as usize] {
                line(Record::SaveTime { level, seconds });
            }
            for &seconds in &self.commits[level as usize] {
                line(Record::CommitTime { level, seconds });
            }
        }
        for &(seconds, slowdown) in &self.copies {
            line(Record::CopyTime { seconds, slowdown });
        }
        if let Some(seconds) = self.restore {
            line(Record::RestoreTime { seconds });
        }
        line(Record::Before(self.totals.bounded()));
        self.notes.notes().map(Record::Note).for_each(&mut line);
        let step = |&seconds: &f64| Record::StepTime { seconds };
        if self.steps_are_old {
            self.steps.iter().map(step).for_each(&mut line);
        }
        let (mut steps, mut unsaved) = (&self.steps[..], 0.0);
        if let Some(open) = self.open {
            line(Record::Start { start: open.start });
            line(Record::Ran {
                seconds: (open.ran - open.unsaved).min(SECONDS_MAX),
            });
            line(Record::Steps { count: open.saved });
            line(Record::Safe);
            unsaved = open.unsaved;
        }
        let mut saved = self.open.map_or(0, |open| open.saved);
        if let Some(copied) = self.copied {
            let (level, seconds) = (copied.level, copied.seconds);
            if !self.steps_are_old {
                let (held, since) = steps.split_at(copied.steps.min(steps.len()));
                held.iter().map(step).for_each(&mut line);
                steps = since;
            }
            line(Record::Ran {
                seconds: (copied.unsaved - seconds).clamp(0.0, SECONDS_MAX),
            });
            line(Record::Steps {
                count: copied.done.saturating_sub(saved),
            });
            saved = saved.max(copied.done);
            line(Record::Copied { level, seconds });
            unsaved -= copied.unsaved;
        }
        if let Some(open) = self.open {
            line(Record::Ran {
                seconds: unsaved.clamp(0.0, SECONDS_MAX),
            });
            line(Record::Steps {
                count: open.done.saturating_sub(saved),
            });
        }
        line(Record::Failing { count: self.failing });
        if !self.steps_are_old {
            steps.iter().map(step).for_each(line);
        }
        text
    }

    /// The totals until now.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The number of saves, and the seconds that the job ran: of journals of one job the newer one knows
    /// more.
    pub fn knowledge(&self) -> (u64, f64) {
        let ran = self.totals.exposure + self.open_ran().unwrap_or(0.0);
        (self.totals.saves, ran)
    }

    /// The number of the start that is not over yet, and how many steps it has done; nothing if there is none.
    pub fn open_steps(&self) -> Option<(u64, u64)> {
        self.open.map(|open| (open.start, open.done))
    }

    /// Tells of saves that fail now, or did when the last start ended.
    pub fn failing(&self) -> Option<Failing> {
        match self.open {
            Some(open) => (self.failing > 0).then_some(Failing {
                count: self.failing,
                unprotected: open.unsaved,
            }),
            None => self.ended_failing,
        }
    }

    /// How long the start ran that is not over yet, in seconds; nothing if there is none.
    pub fn open_ran(&self) -> Option<f64> {
        self.open.map(|open| open.ran)
    }

    /// The time of each of the last saves of a level, in seconds.
    pub fn saves(&self, level: Level) -> &[f64] {
        &self.saves[level as usize]
    }

    /// How long after its blocking part each of the last saves of a level protected, in seconds. Empty if
    /// they are not written in the background.
    pub fn commits(&self, level: Level) -> &[f64] {
        &self.commits[level as usize]
    }

    /// How long each of the last copies on another host took, and by how much steps were longer meanwhile, in seconds.
    pub fn copies(&self) -> &[(f64, f64)] {
        &self.copies
    }

    /// The time of the last restore, in seconds.
    pub fn restore(&self) -> Option<f64> {
        self.restore
    }

    /// The steps since the last save or restore, in seconds each.
    pub fn steps(&self) -> &[f64] {
        &self.steps
    }

    /// How many lines could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }
}

/// Adds to a list of bounded length, of which the oldest goes.
fn keep_last<T>(list: &mut Vec<T>, new: T) {
    if list.len() == SAVES_MAX {
        list.remove(0);
    }
    list.push(new);
}

/// As many saves are looked back at.
pub(crate) const SAVES_MAX: usize = 64;

/// As many steps are remembered to be done again.
pub(crate) const STEPS_MAX: usize = 4096;

/// Ten thousand years.
const SECONDS_MAX: f64 = 3.2e11;
