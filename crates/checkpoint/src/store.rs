//! The checkpoints of one rank, in generations.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ropewalk_agent_link::{Kind, ProgramLink, ToAgent};
use ropewalk_checkpoint_core::{Held, Holdings, KEEP_MIN, Manifest};

use super::{
    environment::{Decided, decided_of_job, start_of_job},
    files::{Files, RealFiles},
    rank_files::RankFiles,
    save::Save,
    saver_lock::SaverLock,
    store_error::{StoreError, cannot},
};

/// The checkpoints of one rank below a directory, which ranks may share or have each for itself.
///
/// A save is written below its own name, hashed and brought to the disk; only then does a manifest with all hashes
/// appear, by one rename. What has no manifest, or does not match it, does not exist for
/// [`restore`](Self::restore), which takes the newest generation that all ranks have whole, and moves anything newer
/// to the folder `quarantine`, in which two generations stay at most.
///
/// ```text
/// DIRECTORY/generation-0000000017/rank-00000/...      what the program wrote
///                                 rank-00000.manifest
///           quarantine/generation-0000000018.rank-00000/...
/// ```
#[derive(Debug)]
pub struct Store<F = RealFiles> {
    pub(super) files: RankFiles<F>,
    /// The number of the next generation.
    pub(super) next: u64,
    /// Own generations that were hashed by this process, when they were saved or later.
    pub(super) whole: Vec<Held>,
    /// From the restore or the first save on.
    pub(super) saver: Option<SaverLock>,
    /// In a job, the agent of the host hears what is committed.
    pub(super) link: Option<ProgramLink>,
}

/// Where checkpoints are and how many are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The directory; it is made if it does not exist.
    pub directory: PathBuf,
    /// Who saves.
    pub rank: u32,
    /// How many save together.
    pub ranks: u32,
    /// If the program's files stay where it writes them: the folder below which that is. It has to be in the
    /// file system of the directory, or nothing can be moved to quarantine.
    pub in_place: Option<PathBuf>,
    /// How many complete generations are kept; never fewer than two. There has to be room on the disk for one more: the
    /// oldest is removed when the newest exists.
    pub keep: usize,
    /// After how many starts that led to no newer generation an older one is taken.
    pub restarts_max: u32,
    /// The number of this start, so that a supervisor and its program count it once.
    pub start: Option<u64>,
    /// The decision of the process that has started the ranks, if there is one.
    pub decided: Option<Decided>,
}

impl StoreOptions {
    /// The checkpoints of a program of one process, of which two generations are kept. If a supervisor has
    /// started it, this is the start that the supervisor means.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            rank: 0,
            ranks: 1,
            in_place: None,
            keep: KEEP_MIN,
            restarts_max: RESTARTS_MAX,
            start: start_of_job(),
            decided: decided_of_job(),
        }
    }

    /// The folder of a generation, where each rank's files are in a folder of its name.
    pub fn generation_path(&self, generation: u64) -> PathBuf {
        self.directory.join(format!("{GENERATION}{generation:010}"))
    }
}

impl Store {
    /// Opens the checkpoints in the operating system's files. In a job of `ropewalk run` every commit is
    /// reported to it, so that the job is not ended between the saves of two ranks.
    ///
    /// # Errors
    /// If the directory cannot be made or read.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let mut store = Self::open_in(RealFiles, options)?;
        let hash = crc32c::crc32c(store.options().directory.as_os_str().as_bytes());
        let directory = (hash >> 16) as u16;
        store.link = ProgramLink::from_env(Kind::Store { directory });
        Ok(store)
    }
}

impl<F: Files> Store<F> {
    /// Opens the checkpoints in some files. Removals that were interrupted are brought to their end.
    ///
    /// # Errors
    /// If the directory cannot be made or read.
    pub fn open_in(files: F, options: StoreOptions) -> Result<Self, StoreError> {
        let directory = options.directory.clone();
        // A directory that can only be read is good enough to restore from.
        if files.kind(&directory).is_err() {
            cannot("make the directory", &directory, files.make_directory(&directory))?;
            // Its own name, and those above it, have to be on the disk too. Not all of them may be ours.
            for above in directory.ancestors().skip(1) {
                let _ = files.sync(above);
            }
        }
        if let Some(root) = &options.in_place {
            note_root(&files, &options, root);
        }
        let mut store = Self {
            files: RankFiles { files, options },
            next: 0,
            whole: Vec::new(),
            saver: None,
            link: None,
        };
        store.next = store.files.highest()?.saturating_add(1);
        for generation in store.files.generations()? {
            if store.files.exists(&store.files.retired_path(generation)) {
                // Whoever cannot remove it now tries again the next time.
                let _ = store.files.finish_retirement(generation);
            }
        }
        Ok(store)
    }

    /// Where checkpoints are and how many are kept.
    pub fn options(&self) -> &StoreOptions {
        &self.files.options
    }

    /// The number of the next generation.
    pub fn next_generation(&self) -> u64 {
        self.next
    }

    /// Begins a save of the next generation. All ranks have to have opened their stores, or restored, before the first
    /// of them begins, and to begin equally often, so that their numbers agree. From the first on no other process can
    /// begin one here as this rank, until this store is dropped or the process ends.
    ///
    /// # Errors
    /// If its folder cannot be made, or another process saves here as this rank.
    pub fn begin(&mut self, step: u64) -> Result<Save, StoreError> {
        self.begin_generation(self.next, step)
    }

    /// Begins a save of a generation with a number above all that this rank has used.
    ///
    /// # Errors
    /// If the number was used, its folder cannot be made, or another process saves here as this rank.
    pub fn begin_generation(&mut self, generation: u64, step: u64) -> Result<Save, StoreError> {
        if generation < self.next {
            return Err(StoreError::Used(generation));
        }
        // Whatever becomes of it: the other ranks count it too.
        self.next = generation.saturating_add(1);
        if self.saver.is_none() {
            self.saver = Some(self.files.lock()?);
        }
        self.files.stage(generation, step)
    }

    /// Makes a save exist: hashes its files, brings them to the disk, and then renames their manifest into place.
    ///
    /// # Errors
    /// If that cannot be done. The remains of the save are removed, so that they take no room from the
    /// next one. If only the folder could not be brought to the disk after that, the save exists until the
    /// machine fails.
    pub fn commit(&mut self, save: Save) -> Result<u64, StoreError> {
        match self.try_commit(&save) {
            Ok(held) => {
                self.whole.retain(|other| other.generation != held.generation);
                self.whole.push(held);
                let generation = held.generation;
                if let Some(link) = &mut self.link {
                    link.tell(ToAgent::Committed { generation });
                }
                Ok(generation)
            }
            Err(error) => {
                self.files.give_up(save);
                Err(error)
            }
        }
    }

    fn try_commit(&self, save: &Save) -> Result<Held, StoreError> {
        let manifest = self.files.seal(save)?;
        self.files.publish(&manifest)?;
        Ok(held(&manifest))
    }

    /// The holdings of this rank: every generation is read and hashed.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn holdings(&mut self) -> Result<Holdings, StoreError> {
        self.whole.clear();
        for generation in self.files.generations()? {
            if let Some(manifest) = self.files.whole_manifest(generation) {
                self.whole.push(held(&manifest));
            }
        }
        Ok(Holdings {
            held: self.whole.clone(),
            highest: self.files.highest()?,
            restarts: self.files.restarts(),
        })
    }

    /// Gives a save up and removes what was written of it (in place, files stay where they are).
    pub fn abandon(&mut self, save: Save) {
        self.files.abandon(save);
    }

    /// Moves this rank's part of a generation to the folder `quarantine`, whatever there is of it, and says where.
    ///
    /// # Errors
    /// If something cannot be moved, as from a disk that can only be read.
    pub fn quarantine(&mut self, generation: u64, why: &str) -> Result<Option<PathBuf>, StoreError> {
        self.whole.retain(|held| held.generation != generation);
        self.files.quarantine(generation, why)
    }

    /// Moves a file or folder that belongs to no generation to the folder `quarantine`, and says where.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn quarantine_path_of(&mut self, path: &Path, why: &str) -> Result<PathBuf, StoreError> {
        self.files.quarantine_path_of(path, why)
    }

    /// The manifest of a generation, if all that it lists is as it was saved.
    pub fn whole_manifest(&self, generation: u64) -> Option<Manifest> {
        self.files.whole_manifest(generation)
    }

    /// Takes back that [`restore`](Self::restore) counted a start from this generation, which ended because the
    /// program does not fit: the generation is not to blame, and is not put aside after a few such starts.
    ///
    /// # Errors
    /// If the count cannot be written.
    pub fn forget_restart(&self, generation: u64) -> Result<(), StoreError> {
        self.files.forget_restart(generation)
    }

    /// The folder of a generation, where each rank's files are in a folder of its name.
    pub fn generation_path(&self, generation: u64) -> PathBuf {
        self.files.generation_path(generation)
    }

    /// The folder of this rank's files of a generation.
    pub fn data_path(&self, generation: u64) -> PathBuf {
        self.files.data_path(generation)
    }
}

/// Writes down where files in place are, for those who only know the directory. A process that can only read
/// the directory has to be told the folder.
fn note_root(files: &impl Files, options: &StoreOptions, root: &Path) {
    let (path, text) = (options.directory.join(ROOT), root.as_os_str().as_bytes());
    if files.read(&path, text.len()).is_ok_and(|found| found == text) {
        return;
    }
    // Nobody reads half of it.
    let temporary = options
        .directory
        .join(format!("{ROOT}.{}", rank_name(options.rank)));
    let _ = files
        .write(&temporary, text)
        .and_then(|()| files.rename(&temporary, &path));
}

pub(super) fn held(manifest: &Manifest) -> Held {
    Held {
        generation: manifest.generation,
        step: manifest.step,
        ranks: manifest.ranks,
    }
}

pub(super) fn rank_name(rank: u32) -> String {
    format!("rank-{rank:05}")
}

/// The prefix of the names of generations' folders.
pub(super) const GENERATION: &str = "generation-";

/// The folder with what must not be restored.
pub(super) const QUARANTINE: &str = "quarantine";

/// The file that says where files in place are.
pub(super) const ROOT: &str = "in-place";

/// As many starts in a row end before the next save with a chance of a hundredth if a save comes four times
/// in each mean time between failures. Supervisors give up after five in vain: by then the generation before
/// has had its turn.
const RESTARTS_MAX: u32 = 3;
