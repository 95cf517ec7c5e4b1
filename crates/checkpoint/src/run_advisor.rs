//! The advisor of a running program: with a clock, and a journal that survives it.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ropewalk_checkpoint_core::{Advice, Advisor, AdvisorOptions, History, Level, Note, Record, Totals};

use super::{
    announcements::{Announced, Announcements},
    background::Ended,
    copied::Copied,
    environment::{default_mtbf_of_job, directory_of_job, host_mtbf_of_job, mtbf_of_job, start_of_job},
    journal_file::{JournalFile, is_for_lack_of_room},
    slowest::Slowest,
};

/// An [`Advisor`] that reads the clock, and remembers in a journal what it has learned, so that the next start of the
/// program knows it.
///
/// One process of a job has one: the one that decides for all. In a job of `ropewalk run` it hears from there
/// when the job will be ended, by a signal, a time limit or the batch system: the program saves at the end of
/// the step, and need do nothing for that. Without a call of [`finish`](Self::finish) the next start takes it
/// that the program failed.
///
/// # Examples
/// ```
/// use ropewalk_checkpoint::{AdvisorOptions, RunAdvisor};
///
/// let folder = tempfile::tempdir()?;
/// let mut advisor = RunAdvisor::start(&AdvisorOptions::default(), Some(folder.path().join("journal")))?;
/// for step in 0..1000 {
///     // Compute one step, then:
///     let advice = advisor.step_end();
///     if advice.decision.save {
///         advisor.save_begin(advice.level);
///         // Save the state.
///         advisor.save_end(advice.level);
///     }
/// }
/// advisor.finish();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct RunAdvisor {
    advisor: Advisor,
    origin: Instant,
    journal: Option<JournalFile>,
    /// Records that wait for room on the disk.
    pending: VecDeque<Record>,
    copies: Option<AwaitedCopies>,
    /// In a job, the agent of the host announces its end, and hears of saves.
    announcements: Option<Announcements>,
    slowest: Option<Slowest>,
    /// Time that is not in the journal yet, and the steps that ended in it.
    unwritten: f64,
    unwritten_steps: u64,
    last: f64,
    failure: Option<io::Error>,
}

/// Word of copies on other hosts.
#[derive(Debug)]
struct AwaitedCopies {
    copied: Copied,
    /// The newest generation that was copied when the last full save began.
    before: Option<u64>,
    looked: f64,
}

impl RunAdvisor {
    /// The advisor of a run that begins now. Without a journal nothing is remembered.
    ///
    /// # Errors
    /// If the journal cannot be read and written.
    pub fn start(options: &AdvisorOptions, journal: Option<PathBuf>) -> io::Result<Self> {
        let (mut journal, mut history) = match journal {
            Some(path) => {
                let (journal, history) = JournalFile::open(path)?;
                (Some(journal), history)
            }
            None => (None, History::default()),
        };
        let start = Record::Start {
            start: start_number(),
        };
        history.add(start);
        let directory = journal.as_ref().and_then(|journal| journal.path().parent());
        let slowest = directory.map(Slowest::of);
        if let Some(journal) = &mut journal {
            journal.add(start)?;
            journal.add(Record::Note(Note::Told(options.mtbf)))?;
            // Whoever starts programs counts their time from there on.
            if let (Some(start), Some(0.0)) = (start_of_job(), history.open_ran()) {
                let seconds = process_age().unwrap_or(0.0);
                journal.add(Record::Note(Note::Began { start, seconds }))?;
            }
        }
        Ok(Self {
            advisor: Advisor::new(options, &history, 0.0),
            origin: Instant::now(),
            journal,
            pending: VecDeque::new(),
            copies: None,
            announcements: Announcements::of_job(),
            slowest,
            unwritten: 0.0,
            unwritten_steps: 0,
            last: 0.0,
            failure: None,
        })
    }

    /// The same in a job whose supervisor says where the journal is, and knows the mean time between failures
    /// or not. Without a supervisor nothing is remembered. If the job's hosts copy each other's saves,
    /// [full](Level::Full) saves are those that are copied, and it is seen when they are; the stores' saves
    /// have to be told their [level](super::Save::set_level).
    ///
    /// # Errors
    /// If the journal cannot be read and written.
    pub fn start_in_job(options: &AdvisorOptions) -> io::Result<Self> {
        let is_default = options.mtbf == AdvisorOptions::default().mtbf;
        let own = if is_default {
            default_mtbf_of_job()
        } else {
            options.mtbf
        };
        let mtbf = mtbf_of_job().unwrap_or(own);
        let directory = directory_of_job();
        let host_mtbf = host_mtbf_of_job()
            .filter(|_| directory.is_some())
            .or(options.host_mtbf);
        let journal = directory.as_ref().map(|directory| directory.join(JOURNAL));
        let options = AdvisorOptions {
            mtbf,
            host_mtbf,
            ..*options
        };
        let mut advisor = Self::start(&options, journal)?;
        advisor.copies = directory
            .filter(|_| host_mtbf.is_some())
            .map(|directory| AwaitedCopies {
                copied: Copied::of(&directory),
                before: None,
                looked: 0.0,
            });
        Ok(advisor)
    }

    /// The [`Advisor`] that decides, with all that it has learned.
    pub fn advisor(&self) -> &Advisor {
        &self.advisor
    }

    /// Why nothing is written to the journal any more, if that is so; the run goes on without it. Said once.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    /// A step is over: whether to save now.
    pub fn step_end(&mut self) -> Advice {
        let now = self.now();
        self.look_for_slowest(now);
        let step = now - self.last;
        if let Some(announcements) = &mut self.announcements {
            announcements.step_end(now);
            while let Some(announced) = announcements.next() {
                match announced {
                    Announced::Notice(left) => self.advisor.preempt(left, now),
                    Announced::KnownEnd(left) => self.advisor.set_limit(left, now),
                }
            }
        }
        let advice = self.advisor.step_end(now);
        if let Some(announcements) = &mut self.announcements {
            announcements.advised(&advice);
        }
        self.unwritten += step;
        if step >= WRITTEN_STEP {
            self.write_rest(step);
            self.write(Record::Step { seconds: step });
        } else {
            self.unwritten_steps += 1;
            if self.unwritten >= WRITTEN_STEP {
                self.write_rest(0.0);
            }
        }
        self.last = now;
        self.look_for_copy(now);
        advice
    }

    /// The advice for now, without another step.
    pub fn advice(&self) -> Advice {
        self.advisor.advice(self.now())
    }

    /// A save begins.
    pub fn save_begin(&mut self, level: Level) {
        let now = self.now();
        self.unwritten += now - self.last;
        self.write_rest(0.0);
        self.last = now;
        if let (Level::Full, Some(copies)) = (level, &mut self.copies) {
            copies.before = copies.copied.read();
        }
        self.advisor.save_begin(level, now);
    }

    /// The save that began has all it needs, and the program goes on while it is written: see [`Advisor::save_copied`].
    pub fn save_copied(&mut self, level: Level) {
        let now = self.now();
        let seconds = self.advisor.save_copied(level, now);
        self.last = now;
        self.write(Record::Copied { level, seconds });
    }

    /// A save is done. After [`save_copied`](Self::save_copied) that may be in the middle of a step.
    pub fn save_end(&mut self, level: Level) {
        let now = self.now();
        if self.advisor.is_writing() {
            let seconds = self.advisor.save_end(level, now);
            self.write(Record::Committed);
            self.write(Record::CommitTime { level, seconds });
        } else {
            let seconds = self.advisor.save_end(level, now);
            self.last = now;
            self.write(Record::Saved { level, seconds });
            if let Some(slowest) = &mut self.slowest {
                slowest.saved(level, seconds);
            }
        }
        // After the journal: the job may be ended from here on.
        if let Some(announcements) = &mut self.announcements {
            announcements.saved(self.advisor.is_saved_for_notice());
        }
    }

    /// A save that was written in the background has ended, in success or not: see
    /// [`BackgroundStore`](super::BackgroundStore).
    pub fn save_ended(&mut self, ended: &Ended) {
        match ended.saved {
            Ok(_) => self.save_end(ended.level),
            Err(_) => self.save_failed(ended.level),
        }
    }

    /// A save could not be made.
    pub fn save_failed(&mut self, level: Level) {
        let now = self.now();
        if self.advisor.is_writing() {
            self.advisor.save_failed(level, now);
            self.write_rest(0.0);
            self.write(Record::NotSaved { level, seconds: 0.0 });
            return;
        }
        let seconds = now - self.last;
        self.last = now;
        self.advisor.save_failed(level, now);
        self.write_rest(0.0);
        self.write(Record::NotSaved { level, seconds });
    }

    /// Something failed that this process survives; it will restore its last save.
    pub fn failed(&mut self) {
        let now = self.now();
        self.unwritten += now - self.last;
        self.write_rest(0.0);
        self.last = now;
        self.advisor.failed(now);
        // Time is counted as it is written; this says only that there was one more.
        self.write(Record::Before(Totals {
            failures: 1,
            ..Totals::default()
        }));
    }

    /// The state is restored: since the last call, or since the start.
    pub fn restored(&mut self) {
        let now = self.now();
        let seconds = self.advisor.restored(now);
        self.last = now;
        self.write(Record::Restored { seconds });
    }

    /// Tells that the restored save is not the last one: see [`Advisor::forget_steps`].
    pub fn forget_steps(&mut self) {
        self.advisor.forget_steps();
    }

    /// How many steps are still to be done; nothing if nobody knows.
    pub fn set_remaining_steps(&mut self, steps: Option<u64>) {
        self.advisor.set_remaining_steps(steps);
    }

    /// The job will be ended after this time: see [`Advisor::preempt`].
    pub fn preempt(&mut self, notice: Duration) {
        let now = self.now();
        self.advisor.preempt(notice.as_secs_f64(), now);
    }

    /// The program is done, or ends because somebody wants it to: no failure.
    pub fn finish(mut self) {
        self.unwritten += self.now() - self.last;
        self.write_rest(0.0);
        self.write(Record::Ended);
        self.journal = None;
    }

    /// Looks whether the slowest rank is done with the last save, for which this one has waited in the step
    /// that ends now.
    fn look_for_slowest(&mut self, now: f64) {
        let Some((level, longer)) = self.slowest.as_mut().and_then(|slowest| slowest.look(now)) else {
            return;
        };
        let seconds = longer.min(now - self.last);
        if seconds > 0.0 {
            self.advisor.save_longer(level, seconds);
            self.last += seconds;
            self.write(Record::SaveLonger { level, seconds });
        }
    }

    /// Looks now and then whether the copy that is awaited is made.
    fn look_for_copy(&mut self, now: f64) {
        let Some(copies) = self.copies.as_mut().filter(|_| self.advisor.is_copying()) else {
            return;
        };
        if now - copies.looked < LOOK {
            return;
        }
        copies.looked = now;
        if copies.copied.read() == copies.before {
            return;
        }
        let age = copies.copied.age().unwrap_or_default().as_secs_f64();
        if let Some((seconds, slowdown)) = self.advisor.copy_end(now - age) {
            self.write(Record::CopyTime { seconds, slowdown });
        }
    }

    fn now(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }

    /// Writes the time that is not in the journal yet, but for what another record will say.
    fn write_rest(&mut self, but: f64) {
        let seconds = self.unwritten - but;
        self.unwritten = 0.0;
        if seconds > 0.0 {
            self.write(Record::Ran { seconds });
        }
        let count = std::mem::take(&mut self.unwritten_steps);
        if count > 0 {
            self.write(Record::Steps { count });
        }
    }

    fn write(&mut self, record: Record) {
        let Some(journal) = &mut self.journal else { return };
        self.pending.push_back(record);
        while let Some(&record) = self.pending.front() {
            match journal.add(record) {
                Ok(()) => drop(self.pending.pop_front()),
                // A disk that is full now may have room the next time.
                Err(error) if is_for_lack_of_room(&error) && self.pending.len() < PENDING_MAX => return,
                Err(error) => {
                    self.failure = Some(error);
                    self.journal = None;
                    self.pending = VecDeque::new();
                    return;
                }
            }
        }
    }
}

/// How long this process has been running, in seconds.
fn process_age() -> Option<f64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program comes before, in parentheses, and may hold blanks.
    let ticks: f64 = stat.rsplit(')').next()?.split(' ').nth(20)?.parse().ok()?;
    let age = uptime - ticks / TICKS_PER_SECOND;
    Some(age.max(0.0))
}

/// In which Linux tells times of processes, on all architectures in use.
const TICKS_PER_SECOND: f64 = 100.0;

/// Writes the rest to the journal, which says then how far a program came that failed.
impl Drop for RunAdvisor {
    fn drop(&mut self) {
        self.unwritten += self.now() - self.last;
        self.write_rest(0.0);
    }
}

fn start_number() -> u64 {
    start_of_job().unwrap_or_else(|| {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Two starts differ in one or the other.
        (time.as_nanos() as u64) ^ (u64::from(std::process::id()) << 40)
    })
}

/// Shorter steps are written together, so that the journal costs nothing that one could measure: a line takes a few
/// microseconds.
const WRITTEN_STEP: f64 = 0.05;

/// As many records wait for room on a full disk.
const PENDING_MAX: usize = 4096;

/// A look for what is copied is two calls of the system.
const LOOK: f64 = 0.02;

/// The name of the journal in the directory of the checkpoints.
pub const JOURNAL: &str = "journal";
