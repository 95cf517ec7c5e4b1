//! Choosing what to start from, and copies elsewhere.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{
    Choice, Held, Holdings, MANIFEST_BYTES_MAX, Manifest, Place, choose, of_other_ranks,
};

use super::{
    coordination::Coordination,
    files::{Files, RealFiles},
    store::{ROOT, Store, StoreOptions, held},
    store_error::{StoreError, cannot},
};

/// The generation that a rank starts from, and the parts put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The generation and its step; nothing if there is none, and the program has to start from its beginning.
    pub from: Option<Held>,
    /// Where this rank's files of it are.
    pub folder: Option<PathBuf>,
    /// The folders of the parts that were put aside.
    pub quarantined: Vec<PathBuf>,
    /// The reasons why some parts could not be put aside; they are not restored all the same.
    pub stuck: Vec<String>,
}

impl<F: Files> Store<F> {
    /// Agrees with the other ranks on the newest generation that all have whole, puts everything newer and
    /// everything torn aside, and counts the start. Reads and hashes every generation there is. If the
    /// generation was [decided](StoreOptions::decided) for all ranks, the others are not asked. From now on
    /// no other process can restore or save here as this rank, until this store is dropped or the process
    /// ends. To look without restoring, call [`survey`](super::survey).
    ///
    /// # Errors
    /// If another process saves here as this rank, the directory cannot be read, the other ranks cannot be
    /// asked, the generation decided on is not here, or the newest generation was saved by another number of
    /// ranks.
    pub fn restore(&mut self, others: &mut dyn Coordination) -> Result<Restored, StoreError> {
        if self.saver.is_none() {
            self.saver = self.files.restoring_lock()?;
        }
        let own = self.holdings()?;
        if let Some(decided) = self.options().decided {
            self.check_ranks(std::slice::from_ref(&own))?;
            let find = |generation| {
                let held = own.held.iter().find(|held| held.generation == generation);
                held.copied().ok_or(StoreError::Missing(generation))
            };
            return Ok(self.apply(&Choice {
                restore: decided.generation.map(find).transpose()?,
                given_up: Vec::new(),
                next: decided.next,
            }));
        }
        let all = others.share_holdings(&own)?;
        self.check_ranks(&all)?;
        Ok(self.apply(&choose(&all, self.options().restarts_max)))
    }

    /// Ranks of another number would find nothing to start from, and put all that is newer than nothing aside.
    fn check_ranks(&self, of_ranks: &[Holdings]) -> Result<(), StoreError> {
        match of_other_ranks(of_ranks, self.options().ranks) {
            None => Ok(()),
            Some(found) => Err(StoreError::OtherRanks {
                directory: self.options().directory.clone(),
                found: found.ranks,
                ranks: self.options().ranks,
            }),
        }
    }

    /// Does to this rank's files what was chosen.
    pub(super) fn apply(&mut self, choice: &Choice) -> Restored {
        let ranks = self.options().ranks;
        // Those of a job of another size are none of ours.
        self.apply_to(choice, |held| held.ranks == ranks)
    }

    /// The same, where only some of the whole generations that are newer are put aside.
    pub(super) fn apply_to(&mut self, choice: &Choice, is_ours: impl Fn(&Held) -> bool) -> Restored {
        let mut restored = Restored {
            from: choice.restore,
            folder: choice.restore.map(|held| self.files.base(held.generation)),
            quarantined: Vec::new(),
            stuck: Vec::new(),
        };
        let newest = choice.restore.map_or(0, |held| held.generation);
        let generations = self.files.generations().unwrap_or_default();
        for generation in generations {
            let found = self.whole.iter().find(|held| held.generation == generation);
            let is_whole = found.is_some();
            if found.is_some_and(|held| generation <= newest || !is_ours(held)) {
                continue;
            }
            let why = if choice.given_up.contains(&generation) {
                "the program did not get from it to the next save"
            } else if is_whole {
                "not all ranks have it whole"
            } else {
                "it is torn, or was changed"
            };
            match self.quarantine(generation, why) {
                Ok(moved) => restored.quarantined.extend(moved),
                Err(error) => restored.stuck.push(error.to_string()),
            }
        }
        self.files.trim_quarantine();
        // Of many at once only the last stay.
        restored.quarantined.retain(|folder| self.files.exists(folder));
        self.next = self.next.max(choice.next);
        if let Some(held) = choice.restore
            && let Err(error) = self.files.note_restart(held.generation)
        {
            restored.stuck.push(error.to_string());
        }
        restored
    }

    /// The newest generation of this rank by its manifest, without a look at its files.
    pub fn newest(&self) -> Option<Held> {
        let generations = self.files.generations().ok()?;
        let found = generations
            .into_iter()
            .rev()
            .find_map(|generation| self.files.manifest(generation))?;
        Some(held(&found))
    }
}

/// [`Store::restore`] for all ranks of a job by one process that can see all their directories: the
/// supervisor, before it starts them.
///
/// # Errors
/// If another process saves as one of the ranks, a directory cannot be read, or the newest generation was
/// saved by another number of ranks.
pub fn restore_all<F: Files>(stores: &mut [Store<F>]) -> Result<Vec<Restored>, StoreError> {
    for store in stores.iter().filter(|store| store.saver.is_none()) {
        // One after the other: a process has fewer open files than a job may have ranks.
        drop(store.files.restoring_lock()?);
    }
    let holdings = holdings_of_all(stores)?;
    stores
        .first()
        .map_or(Ok(()), |store| store.check_ranks(&holdings))?;
    let restarts_max = stores
        .first()
        .map_or(u32::MAX, |store| store.options().restarts_max);
    let choice = choose(&holdings, restarts_max);
    let restored = stores.iter_mut().map(|store| store.apply(&choice)).collect();
    // What stays depends on what the others have moved.
    stores.iter().for_each(|store| store.files.trim_quarantine());
    Ok(restored)
}

/// The newest generation that all ranks have whole, with nothing moved. Reads and hashes every generation there is.
///
/// # Errors
/// If a directory cannot be read.
pub fn newest_whole<F: Files>(stores: &mut [Store<F>]) -> Result<Option<Held>, StoreError> {
    Ok(choose(&holdings_of_all(stores)?, u32::MAX).restore)
}

pub(super) fn holdings_of_all<F: Files>(stores: &mut [Store<F>]) -> Result<Vec<Holdings>, StoreError> {
    stores.iter_mut().map(Store::holdings).collect()
}

/// Opens the stores of all ranks that have saved in a directory, as many as its newest manifest says; none if
/// nothing was saved. `start` is the number of the start that they are opened for.
///
/// # Errors
/// If a directory cannot be made or read.
pub fn open_all(directory: &Path, start: Option<u64>) -> Result<Vec<Store>, StoreError> {
    let options = StoreOptions {
        start,
        ..StoreOptions::new(directory)
    };
    let first = Store::open_in(RealFiles, options.clone())?;
    let newest = first
        .files
        .generations()?
        .into_iter()
        .rev()
        .find_map(|generation| any_manifest(&first, generation));
    let Some(newest) = newest else {
        return Ok(Vec::new());
    };
    let in_place = match newest.place {
        Place::Inside => None,
        Place::InPlace | Place::Kept => {
            let path = directory.join(ROOT);
            let root = cannot("read", &path, RealFiles.read(&path, PATH_BYTES_MAX))?;
            Some(PathBuf::from(OsStr::from_bytes(&root)))
        }
    };
    (0..newest.ranks.min(RANKS_MAX))
        .map(|rank| {
            Store::open_in(
                RealFiles,
                StoreOptions {
                    rank,
                    ranks: newest.ranks,
                    in_place: in_place.clone(),
                    ..options.clone()
                },
            )
        })
        .collect()
}

/// A manifest of any rank.
pub(super) fn any_manifest(store: &Store, generation: u64) -> Option<Manifest> {
    let folder = store.files.generation_path(generation);
    let entries = RealFiles.list(&folder).ok()?;
    entries
        .into_iter()
        .filter(|entry| Path::new(&entry.name).extension() == Some(OsStr::new("manifest")))
        .find_map(|entry| {
            let text = RealFiles
                .read(&folder.join(entry.name), MANIFEST_BYTES_MAX)
                .ok()?;
            Manifest::parse(&text).ok()
        })
}

const PATH_BYTES_MAX: usize = 4096;

/// As many ranks as a job may have.
pub(super) const RANKS_MAX: u32 = 1 << 20;
