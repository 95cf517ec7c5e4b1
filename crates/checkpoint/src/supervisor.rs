//! The supervisor of a job that saves: the files and the clock around [`Supervision`].

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ropewalk_checkpoint_core::{
    Account, AttemptEnd, Held, History, LastWord, Mtbf, Progress, Record, Supervision, SupervisionOptions,
    Totals,
};
use thiserror::Error;

use crate::{
    DIRECTORY_VARIABLE, Decided, GENERATION_VARIABLE, HOST_MTBF_VARIABLE, JOURNAL, JournalFile,
    MTBF_DEFAULT_VARIABLE, MTBF_KNOWN_VARIABLE, MTBF_VARIABLE, NEXT_VARIABLE, RESTORE_STEP_VARIABLE,
    RESTORE_VARIABLE, Restored, START_VARIABLE, Store, StoreError,
    any_ranks::{Survivors, newest_committed},
    newest_whole, open_all, restore_all,
};

/// The supervisor of a job that saves into a directory; a clone is the same supervisor.
///
/// For each attempt the order is [`prepare`](Self::prepare), [`restore`](Self::restore) (or [`decide`](Self::decide) if
/// each host has a directory of its own), [`start`](Self::start). The first and the last two return variables that the
/// program is to have. An attempt that another follows ends with [`progress`](Self::progress) and
/// [`failed`](Self::failed), the last one with [`finish`](Self::finish).
#[derive(Clone, Debug)]
pub struct Supervisor {
    directory: PathBuf,
    origin: Instant,
    machine: Arc<Mutex<Supervision>>,
}

/// Variables that the program is to have.
pub type Variables = Vec<(&'static str, OsString)>;

/// The save from which an attempt starts, and what was put aside for it.
#[derive(Debug, Default)]
pub struct Found {
    /// The save and the folder that ranks are told; the program starts from its beginning if `None`.
    pub from: Option<(Held, PathBuf)>,
    /// Parts of saves that were put aside, where they lie now.
    pub quarantined: Vec<PathBuf>,
    /// Sentences about parts that should have been put aside and could not be.
    pub stuck: Vec<String>,
}

/// A supervisor cannot do its work.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// The directory cannot be made.
    #[error("cannot make the directory {} for checkpoints", .directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The journal cannot be read or written.
    #[error("the journal in {} cannot be used", .directory.display())]
    Journal {
        /// The directory in which it is.
        directory: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another number of ranks has saved together. If those are one, any rank can save for all.
    #[error("{} holds checkpoints of {saved} ranks, and this job has {ranks}", .directory.display())]
    OtherRanks {
        /// The directory.
        directory: PathBuf,
        /// The number of ranks that saved.
        saved: u32,
        /// The number of ranks of this job.
        ranks: u32,
    },
    /// The saves cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Supervisor {
    /// Begins to look after a job that saves into `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// If the directory or its journal cannot be used.
    pub fn new(directory: &Path, options: SupervisionOptions) -> Result<Self, SupervisorError> {
        let cannot_make = |source| SupervisorError::Directory {
            directory: directory.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(cannot_make)?;
        // Ranks may have another working directory, and other hosts other links.
        let directory = match options.has_partners {
            true => std::path::absolute(directory),
            false => fs::canonicalize(directory),
        };
        let directory = directory.map_err(cannot_make)?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let machine = Supervision::new(time.as_nanos() as u64, options);
        let new = Self {
            directory,
            origin: Instant::now(),
            machine: Arc::new(Mutex::new(machine)),
        };
        new.history()?;
        Ok(new)
    }

    /// The directory, as ranks are told it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Prepares attempt `number`, from 1, on so many hosts; the number of its start, and variables.
    pub fn prepare(&self, number: u32, hosts: usize) -> (u64, Variables) {
        self.machine(|machine| {
            let start = machine.handle_preparing(number, hosts);
            // What is known or guessed of the mean time between failures.
            let (name, mtbf) = match machine.options().mtbf {
                Some(Mtbf::Known(mtbf)) => (MTBF_KNOWN_VARIABLE, mtbf),
                Some(Mtbf::Learned(guess)) => (MTBF_VARIABLE, guess),
                None => (MTBF_DEFAULT_VARIABLE, machine.default_mtbf()),
            };
            let variables = vec![
                (DIRECTORY_VARIABLE, self.directory.clone().into_os_string()),
                (START_VARIABLE, start.to_string().into()),
                (name, mtbf.to_string().into()),
            ];
            (start, variables)
        })
    }

    /// Chooses the save from which a job of so many ranks starts, and puts aside what is newer or torn. A save of named
    /// arrays that are partitioned may be of any number of ranks.
    ///
    /// # Errors
    /// If the saves are of another number of ranks, or cannot be used.
    pub fn restore(&self, start: u64, ranks: u32) -> Result<Found, SupervisorError> {
        let other_ranks = |saved| SupervisorError::OtherRanks {
            directory: self.directory.clone(),
            saved,
            ranks,
        };
        if let Some(survivors) = Survivors::look(&self.directory, start)? {
            return match survivors.newest() {
                Some((held, false)) if held.ranks > 1 && held.ranks != ranks => Err(other_ranks(held.ranks)),
                _ => {
                    let (stores, all) = survivors.apply();
                    Ok(Self::found(&stores, all))
                }
            };
        }
        let mut stores = open_all(&self.directory, Some(start))?;
        let saved = stores.len() as u32;
        if saved > 1 && saved != ranks && newest_whole(&mut stores)?.is_some() {
            return Err(other_ranks(saved));
        }
        let all = restore_all(&mut stores)?;
        Ok(Self::found(&stores, all))
    }

    fn found(stores: &[Store], all: Vec<Restored>) -> Found {
        let mut found = Found::default();
        if let (Some(store), Some(held)) = (stores.first(), all.first().and_then(|rank| rank.from)) {
            let path = match &store.options().in_place {
                Some(root) => root.clone(),
                None => store.generation_path(held.generation),
            };
            found.from = Some((held, path));
        }
        for rank in all {
            found.quarantined.extend(rank.quarantined);
            found.stuck.extend(rank.stuck);
        }
        found
    }

    /// Takes what hosts with directories of their own agreed on, and what the journal of rank 0's host says of the time
    /// before; returns variables.
    ///
    /// # Errors
    /// If the journal here cannot be used.
    pub fn decide(&self, decided: Decided, before: Option<Totals>) -> Result<Variables, SupervisorError> {
        let history = self.history()?;
        let generation = decided.generation.map(|generation| generation.to_string());
        let host_mtbf = self.machine(|machine| {
            machine.handle_before_elsewhere(before);
            machine.host_mtbf(&history)
        });
        Ok(vec![
            (HOST_MTBF_VARIABLE, host_mtbf.to_string().into()),
            (
                GENERATION_VARIABLE,
                generation.unwrap_or_else(|| "none".to_owned()).into(),
            ),
            (NEXT_VARIABLE, decided.next.to_string().into()),
        ])
    }

    /// Starts the prepared attempt from a save and its folder, or from the beginning; returns variables. So many parts
    /// of saves were put aside for it.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub fn start(
        &self,
        from: Option<(Held, PathBuf)>,
        quarantined: u64,
    ) -> Result<Variables, SupervisorError> {
        let now = self.origin.elapsed();
        let held = from.as_ref().map(|(held, _)| *held);
        let records = self.machine(|machine| machine.handle_started(now, held, quarantined));
        self.add(&records)?;
        // It may have come from another host. A start before this one is over by now.
        let history = self.history()?;
        self.machine(|machine| machine.handle_journal(&history));
        Ok(from.map_or_else(Vec::new, |(held, path)| {
            vec![
                (RESTORE_VARIABLE, path.into_os_string()),
                (RESTORE_STEP_VARIABLE, held.step.to_string().into()),
            ]
        }))
    }

    /// All ranks have saved this, as hosts with directories of their own tell.
    pub fn saved(&self, held: Held) {
        self.machine(|machine| machine.handle_saved(held));
    }

    /// How far the attempt came that has failed. Called once per attempt.
    pub fn progress(&self) -> Progress {
        let newest = newest_committed(&self.directory);
        let history = JournalFile::look(&self.directory.join(JOURNAL)).ok().flatten();
        self.machine(|machine| machine.progress(newest, history.as_ref()))
    }

    /// An attempt has ended that another follows.
    ///
    /// # Errors
    /// If the journal cannot be written, which need not keep the next attempt from running.
    pub fn failed(&self, began: Duration, lasted: Duration, end: AttemptEnd) -> Result<(), SupervisorError> {
        let newest = newest_committed(&self.directory);
        let records = self.machine(|machine| machine.handle_failed(began, lasted, end, newest));
        self.add(&records)
    }

    /// Sums up a job that is over `total` after its begin. `told` is the journal that a host told, if hosts copy.
    ///
    /// # Errors
    /// If the journal here cannot be used.
    pub fn finish(
        &self,
        total: Duration,
        end: AttemptEnd,
        told: Option<LastWord>,
    ) -> Result<Account, SupervisorError> {
        let history = self.history()?;
        let last = self.machine(|machine| machine.last_records(total, end, &history));
        self.add(&last)?;
        let here = self.history()?;
        let newest = newest_committed(&self.directory);
        Ok(self.machine(|machine| {
            machine.handle_over(total, end, newest);
            machine.account(total, end, &here, told)
        }))
    }

    fn machine<R>(&self, with: impl FnOnce(&mut Supervision) -> R) -> R {
        with(&mut self.machine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn history(&self) -> Result<History, SupervisorError> {
        let opened = JournalFile::open(self.directory.join(JOURNAL));
        Ok(opened.map_err(|source| self.cannot_use(source))?.1)
    }

    /// Writes to the journal, which the program may have rewritten meanwhile.
    fn add(&self, records: &[Record]) -> Result<(), SupervisorError> {
        if records.is_empty() {
            return Ok(());
        }
        let add = || {
            let (mut journal, _) = JournalFile::open(self.directory.join(JOURNAL))?;
            records.iter().try_for_each(|&record| journal.add(record))
        };
        add().map_err(|source| self.cannot_use(source))
    }

    fn cannot_use(&self, source: io::Error) -> SupervisorError {
        let directory = self.directory.clone();
        SupervisorError::Journal { directory, source }
    }
}
