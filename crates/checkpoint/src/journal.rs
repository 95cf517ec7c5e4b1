//! What is remembered of a run over its restarts: how long it ran, how often it failed, how long saves took.

mod note;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use crate::advisor::Level;

pub use note::{COMMAND_BITS, Note};

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
    /// The failure that is noted too was the loss of a host with all that was on it.
    HostLost,
    /// The program came to its end, or was stopped on purpose.
    Ended,
    /// All that was before, in short.
    Before(Totals),
    /// A remark.
    Note(Note),
}

/// What happened in starts that are over, and how many saves and restores there were in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// How many seconds the program ran.
    pub exposure: f64,
    /// How often it failed.
    pub failures: u64,
    /// How many saves were made.
    pub saves: u64,
    /// How many seconds they took.
    pub save_seconds: f64,
    /// How often a save was restored.
    pub restores: u64,
    /// How many seconds that took.
    pub restore_seconds: f64,
    /// How many seconds lay between the last save, restore or start and each failure.
    pub lost: f64,
    /// How many of the failures were the loss of a host.
    pub hosts_lost: u64,
}

impl Totals {
    /// What happened since another time, of which these are the totals.
    pub fn since(&self, before: &Self) -> Self {
        let since = |now: f64, before: f64| (now - before).max(0.0);
        Self {
            exposure: since(self.exposure, before.exposure),
            failures: self.failures.saturating_sub(before.failures),
            saves: self.saves.saturating_sub(before.saves),
            save_seconds: since(self.save_seconds, before.save_seconds),
            restores: self.restores.saturating_sub(before.restores),
            restore_seconds: since(self.restore_seconds, before.restore_seconds),
            lost: since(self.lost, before.lost),
            hosts_lost: self.hosts_lost.saturating_sub(before.hosts_lost),
        }
    }

    /// The same within what is read again.
    fn bounded(&self) -> Self {
        Self {
            exposure: self.exposure.min(SECONDS_MAX),
            save_seconds: self.save_seconds.min(SECONDS_MAX),
            restore_seconds: self.restore_seconds.min(SECONDS_MAX),
            lost: self.lost.min(SECONDS_MAX),
            ..*self
        }
    }

    fn add(&mut self, other: &Self) {
        self.exposure += other.exposure;
        self.failures = self.failures.saturating_add(other.failures);
        self.saves = self.saves.saturating_add(other.saves);
        self.save_seconds += other.save_seconds;
        self.restores = self.restores.saturating_add(other.restores);
        self.restore_seconds += other.restore_seconds;
        self.lost += other.lost;
        self.hosts_lost = self.hosts_lost.saturating_add(other.hosts_lost);
    }
}

impl Record {
    /// Its line, which ends with a line feed.
    pub fn encode(&self) -> String {
        let text = match *self {
            Self::Start { start } => format!("start {start}"),
            Self::Ran { seconds } => format!("ran {seconds}"),
            Self::Step { seconds } => format!("step {seconds}"),
            Self::Saved { level, seconds } => format!("saved {level} {seconds}"),
            Self::Copied { level, seconds } => format!("copied {level} {seconds}"),
            Self::Committed => "committed".to_owned(),
            Self::CommitTime { level, seconds } => format!("commit-time {level} {seconds}"),
            Self::CopyTime { seconds, slowdown } => format!("copy-time {seconds} {slowdown}"),
            Self::Restored { seconds } => format!("restored {seconds}"),
            Self::SaveTime { level, seconds } => format!("save-time {level} {seconds}"),
            Self::StepTime { seconds } => format!("step-time {seconds}"),
            Self::RestoreTime { seconds } => format!("restore-time {seconds}"),
            Self::Failed { ran } => format!("failed {ran}"),
            Self::Safe => "safe".to_owned(),
            Self::HostLost => "host-lost".to_owned(),
            Self::Ended => "ended".to_owned(),
            Self::Note(note) => note.encode(),
            Self::Before(totals) => format!(
                "before {} {} {} {} {} {} {} {}",
                totals.exposure,
                totals.failures,
                totals.saves,
                totals.save_seconds,
                totals.restores,
                totals.restore_seconds,
                totals.lost,
                totals.hosts_lost
            ),
        };
        format!("{:08x} {text}\n", crc32c::crc32c(text.as_bytes()))
    }

    /// What a line says, without its line feed; nothing if it was cut off or changed.
    pub fn parse(line: &[u8]) -> Option<Self> {
        if line.len() > LINE_BYTES_MAX {
            return None;
        }
        let (sum, text) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        if sum != format!("{:08x}", crc32c::crc32c(text.as_bytes())) {
            return None;
        }
        let mut words = text.split(' ');
        let word = words.next()?;
        let mut next = || words.next();
        let record = match word {
            "start" => Self::Start {
                start: next()?.parse().ok()?,
            },
            "ran" => Self::Ran {
                seconds: seconds(next()?)?,
            },
            "step" => Self::Step {
                seconds: seconds(next()?)?,
            },
            "saved" => Self::Saved {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "copied" => Self::Copied {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "committed" => Self::Committed,
            "commit-time" => Self::CommitTime {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "copy-time" => Self::CopyTime {
                seconds: seconds(next()?)?,
                slowdown: seconds(next()?)?,
            },
            "restored" => Self::Restored {
                seconds: seconds(next()?)?,
            },
            "save-time" => Self::SaveTime {
                level: Level::parse(next()?)?,
                seconds: seconds(next()?)?,
            },
            "step-time" => Self::StepTime {
                seconds: seconds(next()?)?,
            },
            "restore-time" => Self::RestoreTime {
                seconds: seconds(next()?)?,
            },
            "failed" => Self::Failed {
                ran: seconds(next()?)?,
            },
            "safe" => Self::Safe,
            "host-lost" => Self::HostLost,
            "ended" => Self::Ended,
            "before" => Self::Before(Totals {
                exposure: seconds(next()?)?,
                failures: next()?.parse().ok()?,
                saves: next()?.parse().ok()?,
                save_seconds: seconds(next()?)?,
                restores: next()?.parse().ok()?,
                restore_seconds: seconds(next()?)?,
                lost: seconds(next()?)?,
                // Journals that were written before hosts were counted do not say it.
                hosts_lost: next().map_or(Some(0), |count| count.parse().ok())?,
            }),
            word => Self::Note(Note::parse(word, next)?),
        };
        words.next().is_none().then_some(record)
    }
}

/// What a journal says. Its memory is bounded, however long the journal.
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
    /// Whether they are those of a start before.
    steps_are_old: bool,
    notes: note::Notes,
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
            Record::Start { start } => {
                if self.open.is_some_and(|open| open.start == start) {
                    return;
                }
                self.copied = None;
                if let Some(open) = self.open.take() {
                    self.failed(open, open.ran + open.last / 2.0);
                }
                self.steps_are_old = true;
                self.open = Some(OpenStart {
                    start,
                    ran: 0.0,
                    last: 0.0,
                    unsaved: 0.0,
                });
            }
            Record::Ran { seconds } => self.ran(seconds),
            Record::Step { seconds } => {
                self.ran(seconds);
                self.step_took(seconds);
            }
            Record::Safe => {
                self.copied = None;
                self.is_safe_now();
            }
            Record::StepTime { seconds } => self.step_took(seconds),
            Record::Saved { level, seconds } => {
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
            Record::CommitTime { level, seconds } => keep_last(&mut self.commits[level as usize], seconds),
            Record::CopyTime { seconds, slowdown } => keep_last(&mut self.copies, (seconds, slowdown)),
            Record::Copied { level, seconds } => {
                self.ran(seconds);
                self.copied = self.open.map(|open| Copied {
                    level,
                    seconds,
                    steps: if self.steps_are_old { 0 } else { self.steps.len() },
                    unsaved: open.unsaved,
                });
            }
            Record::Committed => {
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
                }
                self.totals.saves = self.totals.saves.saturating_add(1);
                self.totals.save_seconds += copied.seconds;
                keep_last(&mut self.saves[copied.level as usize], copied.seconds);
            }
            Record::SaveTime { level, seconds } => keep_last(&mut self.saves[level as usize], seconds),
            Record::RestoreTime { seconds } => self.restore = Some(seconds),
            Record::Restored { seconds } => {
                self.ran(seconds);
                self.restore = Some(seconds);
                self.steps.clear();
                self.copied = None;
                self.is_safe_now();
                self.totals.restores = self.totals.restores.saturating_add(1);
                self.totals.restore_seconds += seconds;
            }
            Record::Failed { ran } => {
                self.copied = None;
                match self.open.take() {
                    Some(open) => self.failed(open, ran.max(open.ran)),
                    None => {
                        self.totals.exposure += ran;
                        self.totals.failures = self.totals.failures.saturating_add(1);
                        self.totals.lost += ran;
                    }
                }
            }
            Record::HostLost => self.totals.hosts_lost = self.totals.hosts_lost.saturating_add(1),
            Record::Ended => {
                self.copied = None;
                self.totals.exposure += self.open.take().map_or(0.0, |open| open.ran);
                self.steps.clear();
            }
            Record::Before(totals) => self.totals.add(&totals),
            Record::Note(note) => self.note(note),
        }
    }

    /// A start is over that ran for so many seconds.
    fn failed(&mut self, open: OpenStart, ran: f64) {
        self.totals.exposure += ran;
        self.totals.failures = self.totals.failures.saturating_add(1);
        self.totals.lost += open.unsaved + (ran - open.ran);
    }

    fn is_safe_now(&mut self) {
        if let Some(open) = &mut self.open {
            open.unsaved = 0.0;
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
            line(Record::Safe);
            unsaved = open.unsaved;
        }
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
            line(Record::Copied { level, seconds });
            unsaved -= copied.unsaved;
        }
        if self.open.is_some() {
            line(Record::Ran {
                seconds: unsaved.clamp(0.0, SECONDS_MAX),
            });
        }
        if !self.steps_are_old {
            steps.iter().map(step).for_each(line);
        }
        text
    }

    /// What happened until now.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How many saves there were, and for how many seconds the job ran: of journals of one job the newer one knows more.
    pub fn knowledge(&self) -> (u64, f64) {
        let ran = self.totals.exposure + self.open_ran().unwrap_or(0.0);
        (self.totals.saves, ran)
    }

    /// How long the start ran that is not over yet, in seconds; nothing if there is none.
    pub fn open_ran(&self) -> Option<f64> {
        self.open.map(|open| open.ran)
    }

    /// The time of each of the last saves of a level, in seconds.
    pub fn saves(&self, level: Level) -> &[f64] {
        &self.saves[level as usize]
    }

    /// How long after its blocking part each of the last saves of a level protected, in seconds; none if they are not written
    /// in the background.
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

fn seconds(text: &str) -> Option<f64> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=SECONDS_MAX).contains(&seconds).then_some(seconds)
}

/// The longest line that is written is shorter.
const LINE_BYTES_MAX: usize = 256;

/// As many saves are looked back at.
pub(crate) const SAVES_MAX: usize = 64;

/// As many steps are remembered to be done again.
pub(crate) const STEPS_MAX: usize = 4096;

/// Ten thousand years.
const SECONDS_MAX: f64 = 3.2e11;
