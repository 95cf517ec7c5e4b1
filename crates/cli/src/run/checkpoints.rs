//! The supervisor: starts each attempt of a job from the newest whole checkpoint, and sums up at the end what saving cost.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use ropewalk_checkpoint::{
    COMMAND_BITS, DIRECTORY_VARIABLE, GENERATION_VARIABLE, HOST_MTBF_VARIABLE, Held, History, JOURNAL,
    JournalFile, Level, MTBF_AT_FIRST, MTBF_DEFAULT_VARIABLE, MTBF_KNOWN_VARIABLE, MTBF_VARIABLE, Mtbf,
    NEXT_VARIABLE, RESTORE_STEP_VARIABLE, RESTORE_VARIABLE, Record, START_VARIABLE, Store, StoreError,
    StoreOptions, Totals, newest_whole, open_all, quarantined, restore_all,
};
use ropewalk_launch::{
    Ending, FailureKind, JobSpec, Verdict,
    restart::{Attempt, BetweenAttempts, Progress},
};

use super::{
    partners::{LastWord, LastWords, Partners},
    reached::Reached,
    saving::Saving,
    say,
    summary::Summary,
    upload,
};
use crate::partner::Ready;

/// What the user says about checkpoints.
#[derive(Clone, Debug)]
pub(super) struct CheckpointOptions {
    pub(super) directory: PathBuf,
    /// Learned from a default guess if `None`.
    pub(super) mtbf: Option<Mtbf>,
    /// The same between losses of a host, for which copies are made.
    pub(super) host_mtbf: Option<Mtbf>,
    /// Whether the directory is each host's own, and hosts copy what others save.
    pub(super) has_partners: bool,
    /// The address of an object store.
    pub(super) upload: Option<String>,
}

/// What happens between the attempts of a job that saves.
#[derive(Debug)]
pub(super) struct Checkpoints {
    directory: PathBuf,
    mtbf: Option<Mtbf>,
    host_mtbf: Option<Mtbf>,
    /// The same for all attempts of this command but for the attempt's number in the low bits.
    base: u64,
    origin: Instant,
    account: Account,
    reached: Reached,
    partners: Option<Partners>,
    upload: Option<String>,
}

/// What is known of the job so far, shared with who sums it up.
#[derive(Clone, Debug, Default)]
pub(super) struct Account(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What the journal here said before this command.
    before: Totals,
    /// The same of the journal on rank 0's host, if that is told.
    before_elsewhere: Option<Totals>,
    last_words: Option<LastWords>,
    /// What the running attempt began from.
    from: Option<Held>,
    /// The first attempts; of the others only how many there were.
    attempts: Vec<Past>,
    attempt_count: u64,
    failures: u64,
    /// How long all attempts took.
    attempts_lasted: Duration,
    /// A start of this command.
    command: u64,
    default_mtbf: f64,
    /// How many of them were the same again.
    repeated: u64,
    /// The newest that all ranks have saved, if hosts tell.
    newest: Option<Held>,
    /// When the running attempt began.
    began: Duration,
    quarantined: u64,
}

/// How the last attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastEnd {
    /// Something failed.
    Failed,
    /// The same failed again at the same step, which says nothing about how often the machine fails.
    Repeated,
    /// A host was lost.
    HostLost,
    /// It was done, or ended because somebody wanted it to.
    Planned,
}

impl LastEnd {
    pub(super) fn of(verdict: &Verdict) -> Self {
        // A wrong name of a program says nothing about how often it fails.
        let never_ran = verdict
            .failures
            .first()
            .is_some_and(|failure| matches!(failure.kind, FailureKind::NotStarted { .. }));
        match verdict.ending {
            Ending::AgentLost { .. } => Self::HostLost,
            Ending::Failed if verdict.repeated.is_some() => Self::Repeated,
            Ending::Failed | Ending::Stalled { .. } if !never_ran => Self::Failed,
            // Who is told to end, or has no time left, has not failed.
            _ => Self::Planned,
        }
    }
}

impl LastEnd {
    /// The same of an attempt that another follows, which is a failure in any case.
    fn of_failure(self) -> Self {
        match self {
            Self::Planned => Self::Failed,
            end => end,
        }
    }

    /// How the journal notes a failure after so many seconds.
    fn record(self, ran: f64) -> Record {
        match self {
            Self::Repeated => Record::Repeated { ran },
            _ => Record::Failed { ran },
        }
    }
}

/// An attempt that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Past {
    pub(super) began: Duration,
    pub(super) lasted: Duration,
    pub(super) failed: bool,
    /// The step from which it began, and the newest saved at its end.
    pub(super) from_step: u64,
    pub(super) to_step: u64,
}

impl Checkpoints {
    /// Begins to look after a job.
    pub(super) fn new(options: &CheckpointOptions) -> anyhow::Result<Self> {
        let directory = &options.directory;
        fs::create_dir_all(directory).with_context(|| {
            format!(
                "cannot make the directory {} for checkpoints",
                directory.display()
            )
        })?;
        // Ranks may have another working directory, and other hosts other links.
        let directory = match options.has_partners {
            true => std::path::absolute(directory),
            false => fs::canonicalize(directory),
        };
        let directory = directory
            .with_context(|| format!("cannot find the directory {}", options.directory.display()))?;
        JournalFile::open(directory.join(JOURNAL))
            .with_context(|| format!("cannot use the journal in {}", directory.display()))?;
        let account = Account::default();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let partners = options
            .has_partners
            .then(|| Partners::new(directory.clone(), account.clone()));
        Ok(Self {
            partners,
            upload: options.upload.clone(),
            directory,
            mtbf: options.mtbf,
            host_mtbf: options.host_mtbf,
            base: (time.as_nanos() as u64) << COMMAND_BITS,
            origin: Instant::now(),
            account,
            reached: Reached::default(),
        })
    }

    /// What is known of the job, also when this is not at hand any more.
    pub(super) fn account(&self) -> Account {
        self.account.clone()
    }

    /// What to start from, fetched from the object store if nothing is left here.
    fn restored(&self, number: u32, start: u64, ranks: u32) -> anyhow::Result<Option<Found>> {
        let until = Instant::now() + LEFT_BEHIND;
        let found = loop {
            match restored(&self.directory, start, ranks) {
                // A host that was lost may have left a process of the attempt before, or its lock, for a while.
                Err(error)
                    if number > 1
                        && Instant::now() < until
                        && matches!(error.downcast_ref(), Some(StoreError::SavedByAnother { .. })) =>
                {
                    thread::sleep(Duration::from_millis(100));
                }
                found => break found?,
            }
        };
        let Some(url) = self.upload.as_ref().filter(|_| found.is_none()) else {
            return Ok(found);
        };
        upload::fetch(url, &self.directory, start)?;
        restored(&self.directory, start, ranks)
    }

    /// How many steps the advisor of the attempt that is over was told of, as far as the journal here says.
    fn steps_done(&self) -> Option<u64> {
        let history = JournalFile::look(&self.directory.join(JOURNAL)).ok().flatten()?;
        let (start, steps) = history.open_steps()?;
        // Without an advisor nobody has told any.
        (start >> COMMAND_BITS == self.base >> COMMAND_BITS && steps > 0).then_some(steps)
    }

    fn note_end(&self, attempt: &Attempt) {
        let newest = self.account.newest(&self.directory);
        let end = LastEnd::of(&attempt.verdict).of_failure();
        self.account
            .known(|known| known.end(attempt.began, attempt.lasted, end, newest));
        let ran = attempt.lasted.as_secs_f64();
        let mut records = vec![end.record(ran)];
        if end == LastEnd::HostLost {
            records.push(Record::HostLost);
        }
        if let Err(error) = add(&self.directory, &records) {
            say(&format!("cannot write the journal: {error}"));
        }
    }

    /// Tells the program what is known or guessed of the mean time between failures.
    fn tell_mtbf(&self, default: f64, spec: &mut JobSpec) {
        let (name, mtbf) = match self.mtbf {
            Some(Mtbf::Known(mtbf)) => (MTBF_KNOWN_VARIABLE, mtbf),
            Some(Mtbf::Learned(guess)) => (MTBF_VARIABLE, guess),
            None => (MTBF_DEFAULT_VARIABLE, default),
        };
        spec.environment.push((name.into(), mtbf.to_string().into()));
    }
}

impl BetweenAttempts for Checkpoints {
    fn prepare(&mut self, number: u32, last: Option<&Attempt>, spec: &mut JobSpec) -> Result<(), String> {
        if let Some(last) = last {
            self.note_end(last);
        }
        let start = self.base | (u64::from(number) & ((1 << COMMAND_BITS) - 1));
        let mut set =
            |name: &str, value: &std::ffi::OsStr| spec.environment.push((name.into(), value.into()));
        set(DIRECTORY_VARIABLE, self.directory.as_os_str());
        set(START_VARIABLE, start.to_string().as_ref());
        let default = MTBF_AT_FIRST / spec.hosts.len().max(1) as f64;
        self.tell_mtbf(default, spec);
        self.account.known(|known| {
            known.default_mtbf = default;
            known.command = start;
        });
        let found = match &mut self.partners {
            Some(partners) => {
                let ready = partners
                    .prepare(start, spec)
                    .map_err(|error| format!("{error:#}"))?;
                let (_, history) = JournalFile::open(self.directory.join(JOURNAL)).map_err(|error| {
                    format!(
                        "the journal in {} cannot be used: {error}",
                        self.directory.display()
                    )
                })?;
                if number == 1 {
                    self.account
                        .known(|known| known.before_elsewhere = ready.before());
                }
                let told = self.host_mtbf.unwrap_or(Mtbf::Learned(default));
                let host_mtbf = history.believed_host_mtbf(told).to_string();
                spec.environment
                    .push((HOST_MTBF_VARIABLE.into(), host_mtbf.into()));
                let mut set = |name: &str, value: String| spec.environment.push((name.into(), value.into()));
                let generation = ready.restore.map(|(generation, ..)| generation.to_string());
                set(
                    GENERATION_VARIABLE,
                    generation.unwrap_or_else(|| "none".to_owned()),
                );
                set(NEXT_VARIABLE, ready.next.to_string());
                Found::of(&ready, &self.directory)
            }
            None => {
                let more = spec.more.iter().map(|segment| segment.ranks);
                let ranks = more.fold(spec.ranks, u32::saturating_add);
                self.restored(number, start, ranks)
                    .map_err(|error| format!("{error:#}"))?
            }
        };
        let mut set =
            |name: &str, value: &std::ffi::OsStr| spec.environment.push((name.into(), value.into()));
        self.account
            .known(|known| known.from = found.as_ref().map(|found| found.held));
        self.account.known(|known| known.newest = known.from);
        if let Some(found) = found {
            set(RESTORE_VARIABLE, found.path.as_os_str());
            set(RESTORE_STEP_VARIABLE, found.held.step.to_string().as_ref());
            let Held { generation, step, .. } = found.held;
            say(&format!(
                "attempt {number} starts from generation {generation}, step {step}"
            ));
            self.account.known(|known| known.quarantined += found.quarantined);
        }
        let began = self.origin.elapsed();
        self.account.known(|known| known.began = began);
        let cannot_use = |error: io::Error| {
            format!(
                "the journal in {} cannot be used: {error}",
                self.directory.display()
            )
        };
        add(&self.directory, &[Record::Start { start }]).map_err(cannot_use)?;
        if number == 1 {
            // It may have come from another host. A start before this one is over by now.
            let (_, history) = JournalFile::open(self.directory.join(JOURNAL)).map_err(cannot_use)?;
            self.account.known(|known| known.before = *history.totals());
        }
        Ok(())
    }

    fn progress(&mut self, _attempt: &Attempt) -> Progress {
        let newest = self.account.newest(&self.directory);
        let from = self.account.known(|known| known.from);
        let step = |held: Held| held.step;
        self.reached
            .ended(from.map(step), newest.map(step), self.steps_done())
    }
}

impl Account {
    fn known<R>(&self, look: impl FnOnce(&mut Known) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All ranks have saved this.
    pub(super) fn note_newest(&self, held: Held) {
        self.known(|known| known.newest = Some(held));
    }

    /// From whom what the hosts know can be had when all is over.
    pub(super) fn note_last_words(&self, last_words: LastWords) {
        self.known(|known| known.last_words = Some(last_words));
    }

    /// The newest that all ranks have saved.
    fn newest(&self, directory: &Path) -> Option<Held> {
        let told = self.known(|known| known.newest);
        [told, newest(directory)]
            .into_iter()
            .flatten()
            .max_by_key(|held| held.generation)
    }

    /// Notes the end of the last attempt, and sums up the whole job.
    pub(super) fn finish(
        &self,
        options: &CheckpointOptions,
        total: Duration,
        end: LastEnd,
    ) -> anyhow::Result<Summary> {
        let directory = &options.directory;
        let journal = directory.join(JOURNAL);
        let cannot_use = || format!("cannot use {}", journal.display());
        let began = self.known(|known| known.began);
        let lasted = total.saturating_sub(began);
        let told = self
            .known(|known| known.last_words.take())
            .and_then(LastWords::take);
        let (_, history) = JournalFile::open(&journal).with_context(cannot_use)?;
        let last = last_records(&history, lasted, end);
        if !last.is_empty() {
            add(directory, &last).with_context(cannot_use)?;
            if end == LastEnd::HostLost {
                add(directory, &[Record::HostLost]).with_context(cannot_use)?;
            }
        }
        let (_, here) = JournalFile::open(&journal).with_context(cannot_use)?;
        let newest = self.newest(directory);
        let mean = |times: &[f64]| match times {
            [] => None,
            times => Some(times.iter().sum::<f64>() / times.len() as f64),
        };
        self.known(|known| {
            known.end(began, lasted, end, newest);
            let told = told.map(|word| word.with(|history| last_records(history, lasted, end)));
            let measured = known.measured(told, &here, options.has_partners);
            let history = measured.as_ref().map_or(&here, |(history, _)| history);
            let mut saves = history.saves(Level::Full).to_vec();
            if options.has_partners {
                // What is copied is saved in the same way as what is not.
                saves.extend(history.saves(Level::Fast));
            }
            // The program decided by what it was told itself.
            let told = history.told().or(options.mtbf);
            let told = told.unwrap_or(Mtbf::Learned(known.default_mtbf));
            let save = mean(&saves);
            let totals = measured
                .as_ref()
                .map(|(history, before)| history.totals().since(before));
            Ok(Summary {
                total: total.as_secs_f64(),
                totals,
                saving: totals.map(|totals| Saving::of(&totals, history.failing(), total)),
                attempts_lasted: known.attempts_lasted.as_secs_f64(),
                starting: history.starting(known.command),
                mtbf: history.believed_mtbf(told),
                mtbf_is_known: matches!(told, Mtbf::Known(_)),
                cautious_mtbf: history.cautious_mtbf(told, save.unwrap_or(1.0)),
                save,
                restore: history.restore(),
                quarantined: known.quarantined,
                in_quarantine: in_quarantine(directory),
                attempts: known.attempts.clone(),
                attempt_count: known.attempt_count,
                failures: known.failures,
                repeated: known.repeated,
            })
        })
    }
}

/// What a journal lacks at the end, if its start is still open: the program need not have one of its own.
fn last_records(history: &History, lasted: Duration, end: LastEnd) -> Vec<Record> {
    let (Some(ran), lasted) = (history.open_ran(), lasted.as_secs_f64()) else {
        return Vec::new();
    };
    match end {
        LastEnd::Failed | LastEnd::HostLost | LastEnd::Repeated => vec![end.record(lasted)],
        LastEnd::Planned => {
            let seconds = (lasted - ran).max(0.0);
            vec![Record::Ran { seconds }, Record::Ended]
        }
    }
}

impl Known {
    /// The journal with what saving cost, and what it said before this command. Rank 0 writes it on its host; with partners
    /// that need not be this one, whose journal says only how long attempts took.
    fn measured(
        &self,
        told: Option<LastWord>,
        here: &History,
        has_partners: bool,
    ) -> Option<(History, Totals)> {
        match told {
            Some(LastWord::Own(history)) => Some((history, self.before_elsewhere?)),
            Some(LastWord::Copy(history)) if history.knowledge() > here.knowledge() => {
                Some((history, self.before_elsewhere?))
            }
            _ => {
                let is_measured = !has_partners || here.totals().since(&self.before).saves > 0;
                is_measured.then(|| (here.clone(), self.before))
            }
        }
    }

    fn end(&mut self, began: Duration, lasted: Duration, end: LastEnd, newest: Option<Held>) {
        let failed = end != LastEnd::Planned;
        let from_step = self.from.map_or(0, |held| held.step);
        self.attempt_count += 1;
        self.attempts_lasted += lasted;
        self.repeated += u64::from(end == LastEnd::Repeated);
        self.failures += u64::from(failed);
        if self.attempts.len() == ATTEMPTS_KEPT_MAX {
            return;
        }
        self.attempts.push(Past {
            began,
            lasted,
            failed,
            from_step,
            to_step: newest.map_or(0, |held| held.step).max(from_step),
        });
    }
}

struct Found {
    held: Held,
    path: PathBuf,
    quarantined: u64,
}

impl Found {
    /// What hosts have agreed on.
    fn of(ready: &Ready, directory: &Path) -> Option<Self> {
        let (generation, step, ranks) = ready.restore?;
        let in_folder = || StoreOptions::new(directory).generation_path(generation);
        Some(Self {
            held: Held {
                generation,
                step,
                ranks,
            },
            path: ready.root.clone().unwrap_or_else(in_folder),
            quarantined: ready.quarantined.len() as u64,
        })
    }
}

/// Chooses what to start from, and puts aside what is newer or torn. Refuses a job of another number of ranks than saved
/// together before, but if those are one: any rank can save for all.
fn restored(directory: &Path, start: u64, ranks: u32) -> anyhow::Result<Option<Found>> {
    let mut stores = open_all(directory, Some(start))?;
    let saved = stores.len();
    if saved > 1 && saved != ranks as usize && newest_whole(&mut stores)?.is_some() {
        bail!(
            "{} holds checkpoints of {saved} ranks, and this job has {ranks}: start it with -n {saved}, or give another \
             folder to --checkpoint",
            directory.display()
        );
    }
    let all = restore_all(&mut stores)?;
    let mut quarantined = 0;
    for rank in &all {
        for path in &rank.quarantined {
            quarantined += 1;
            say(&format!("put aside in {}", path.display()));
        }
        for stuck in &rank.stuck {
            say(stuck);
        }
    }
    let (Some(store), Some(rank)) = (stores.first(), all.first()) else {
        return Ok(None);
    };
    let Some(held) = rank.from else { return Ok(None) };
    let path = match &store.options().in_place {
        Some(root) => root.clone(),
        None => store.generation_path(held.generation),
    };
    Ok(Some(Found {
        held,
        path,
        quarantined,
    }))
}

/// The generations that lie in quarantine here, and where that is.
fn in_quarantine(directory: &Path) -> Option<(Vec<u64>, PathBuf)> {
    let found = quarantined(directory);
    (!found.is_empty()).then(|| (found, directory.join("quarantine")))
}

/// The newest generation that all ranks say they have.
fn newest(directory: &Path) -> Option<Held> {
    let stores = open_all(directory, None).ok()?;
    let newest: Vec<Held> = stores.iter().map(Store::newest).collect::<Option<_>>()?;
    newest.into_iter().min_by_key(|held| held.generation)
}

/// Writes to the journal, which the program may have rewritten meanwhile.
fn add(directory: &Path, records: &[Record]) -> io::Result<()> {
    let (mut journal, _) = JournalFile::open(directory.join(JOURNAL))?;
    records.iter().try_for_each(|&record| journal.add(record))
}

/// So long a process of an attempt that is over may keep its lock.
const LEFT_BEHIND: Duration = Duration::from_secs(10);

/// As many can be drawn.
const ATTEMPTS_KEPT_MAX: usize = 200;
