//! The checkpoints of one rank, in generations.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ropewalk_agent_link::{Kind, ProgramLink, ToAgent};
use ropewalk_checkpoint_core::{
    Held, Holdings, KEEP_MIN, MANIFEST_BYTES_MAX, Manifest, Place, Restarts, SavedFile,
};

use super::{
    environment::{Decided, decided_of_job, start_of_job},
    files::{EntryKind, Files, RealFiles},
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
    pub(super) files: F,
    pub(super) options: StoreOptions,
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
        let hash = crc32c::crc32c(store.options.directory.as_os_str().as_bytes());
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
            files,
            options,
            next: 0,
            whole: Vec::new(),
            saver: None,
            link: None,
        };
        store.next = store.highest()?.saturating_add(1);
        for generation in store.generations()? {
            if store.exists(&store.retired_path(generation)) {
                // Whoever cannot remove it now tries again the next time.
                let _ = store.finish_retirement(generation);
            }
        }
        Ok(store)
    }

    /// Where checkpoints are and how many are kept.
    pub fn options(&self) -> &StoreOptions {
        &self.options
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
            self.saver = Some(SaverLock::take(&self.files, &self.options)?);
        }
        self.stage(generation, step)
    }

    pub(super) fn stage(&self, generation: u64, step: u64) -> Result<Save, StoreError> {
        let folder = match self.place() {
            Place::Inside => self.data_path(generation),
            Place::InPlace | Place::Kept => self.generation_path(generation),
        };
        cannot("make the directory", &folder, self.files.make_directory(&folder))?;
        Ok(Save::new(generation, step, self.base(generation)))
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
                self.give_up(save);
                Err(error)
            }
        }
    }

    /// Abandons a save that could not be committed, unless it exists all the same: others may have been told
    /// of it by now.
    pub(super) fn give_up(&mut self, save: Save) {
        if !self.exists(&self.manifest_path(save.generation())) {
            self.abandon(save);
        }
    }

    fn try_commit(&self, save: &Save) -> Result<Held, StoreError> {
        let manifest = self.seal(save)?;
        self.publish(&manifest)?;
        Ok(held(&manifest))
    }

    /// Hashes the files of a save and brings them to the disk.
    pub(super) fn seal(&self, save: &Save) -> Result<Manifest, StoreError> {
        let manifest = save.manifest(self)?;
        for folder in [&self.generation_path(save.generation()), &self.options.directory] {
            cannot("bring to the disk", folder, self.files.sync(folder))?;
        }
        Ok(manifest)
    }

    /// Makes a save that is sealed exist.
    pub(super) fn publish(&self, manifest: &Manifest) -> Result<(), StoreError> {
        let generation = manifest.generation;
        let folder = self.generation_path(generation);
        let sync = |path: &Path| cannot("bring to the disk", path, self.files.sync(path));
        let [path, temporary] = [self.manifest_path(generation), self.temporary_path(generation)];
        let text = manifest.encode();
        cannot("write", &temporary, self.files.write(&temporary, text.as_bytes()))?;
        sync(&temporary)?;
        cannot("rename", &temporary, self.files.rename(&temporary, &path))?;
        sync(&folder)
    }

    /// Gives a save up and removes what was written of it (in place, files stay where they are).
    pub fn abandon(&mut self, save: Save) {
        let generation = save.generation();
        for path in [self.manifest_path(generation), self.temporary_path(generation)] {
            let _ = self.files.remove_file(&path);
        }
        // What cannot be removed now is moved to quarantine at the next restart.
        let _ = self.remove_tree(&self.data_path(generation));
        let _ = self.files.remove_directory(&self.generation_path(generation));
    }

    /// The holdings of this rank: every generation is read and hashed.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn holdings(&mut self) -> Result<Holdings, StoreError> {
        self.whole.clear();
        for generation in self.generations()? {
            if let Some(manifest) = self.whole_manifest(generation) {
                self.whole.push(held(&manifest));
            }
        }
        Ok(Holdings {
            held: self.whole.clone(),
            highest: self.highest()?,
            restarts: self.restarts(),
        })
    }

    /// The manifest of a generation, if all that it lists is as it was saved.
    pub fn whole_manifest(&self, generation: u64) -> Option<Manifest> {
        let manifest = self.manifest(generation)?;
        let base = self.base(generation);
        let inside = |path: &[u8]| base.join(OsStr::from_bytes(path));
        let is_whole = |file: &SavedFile| {
            let found = self.files.digest(&inside(&file.path));
            found.is_ok_and(|found| found == (file.size, file.hash))
        };
        let is_there = |path: &Vec<u8>| matches!(self.files.kind(&inside(path)), Ok(EntryKind::Directory));
        let whole = manifest.empty_directories.iter().all(is_there) && manifest.files.iter().all(is_whole);
        whole.then_some(manifest)
    }

    /// The generations that have a folder, in rising order.
    pub(super) fn generations(&self) -> Result<Vec<u64>, StoreError> {
        let directory = &self.options.directory;
        let entries = cannot("read the directory", directory, self.files.list(directory))?;
        let mut found: Vec<u64> = entries
            .iter()
            .filter_map(|entry| entry.name.to_str()?.strip_prefix(GENERATION)?.parse().ok())
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    /// The highest number of all that have a folder here or in quarantine.
    fn highest(&self) -> Result<u64, StoreError> {
        let quarantined = self.files.list(&self.quarantine_path()).unwrap_or_default();
        let quarantined = quarantined.iter().filter_map(|entry| {
            let rest = entry.name.to_str()?.strip_prefix(GENERATION)?;
            rest.split('.').next()?.parse().ok()
        });
        Ok(self
            .generations()?
            .into_iter()
            .chain(quarantined)
            .max()
            .unwrap_or(0))
    }

    /// This rank's manifest of a generation, if there is one that can be read and it belongs there.
    pub(super) fn manifest(&self, generation: u64) -> Option<Manifest> {
        let manifest = self.read_manifest(&self.manifest_path(generation)).ok()??;
        (manifest.generation == generation).then_some(manifest)
    }

    /// The manifest of this rank at a path; nothing if it is not there, or none of this rank.
    pub(super) fn read_manifest(&self, path: &Path) -> Result<Option<Manifest>, StoreError> {
        let text = match self.files.read(path, MANIFEST_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if is_no_manifest(&error) => return Ok(None),
            Err(error) => return cannot("read", path, Err(error)),
        };
        let is_inside = |place| place == Place::Inside;
        let belongs = |manifest: &Manifest| {
            manifest.rank == self.options.rank && is_inside(manifest.place) == is_inside(self.place())
        };
        Ok(Manifest::parse(&text).ok().filter(belongs))
    }

    /// How often earlier starts began from a generation. This one does not count, though its supervisor has noted it.
    fn restarts(&self) -> Option<Restarts> {
        let (mut restarts, noted) = self.noted_restarts()?;
        if noted.is_some() && noted == self.options.start {
            restarts.count = restarts.count.saturating_sub(1);
        }
        Some(restarts)
    }

    /// The count, and the number of the start that was counted last.
    fn noted_restarts(&self) -> Option<(Restarts, Option<u64>)> {
        let text = self.files.read(&self.restarts_path(), RESTARTS_BYTES_MAX).ok()?;
        let mut words = std::str::from_utf8(&text).ok()?.split_ascii_whitespace();
        let restarts = Restarts {
            generation: words.next()?.parse().ok()?,
            count: words.next()?.parse().ok()?,
        };
        Some((restarts, words.next().and_then(|start| start.parse().ok())))
    }

    /// Notes one more start from a generation, unless this start is noted already.
    pub(super) fn note_restart(&self, generation: u64) -> Result<(), StoreError> {
        let before = self
            .noted_restarts()
            .filter(|(restarts, _)| restarts.generation == generation);
        let start = self.options.start;
        if before.is_some_and(|(_, noted)| noted.is_some() && noted == start) {
            return Ok(());
        }
        let count = before.map_or(0, |(restarts, _)| restarts.count).saturating_add(1);
        self.write_restarts(generation, count, start)
    }

    /// Takes back that [`restore`](Self::restore) counted a start from this generation, which ended because the
    /// program does not fit: the generation is not to blame, and is not put aside after a few such starts.
    ///
    /// # Errors
    /// If the count cannot be written.
    pub fn forget_restart(&self, generation: u64) -> Result<(), StoreError> {
        let noted = self.noted_restarts();
        let Some((restarts, start)) = noted.filter(|(restarts, _)| restarts.generation == generation) else {
            return Ok(());
        };
        self.write_restarts(generation, restarts.count.saturating_sub(1), start)
    }

    fn write_restarts(&self, generation: u64, count: u32, start: Option<u64>) -> Result<(), StoreError> {
        let path = self.restarts_path();
        let temporary = path.with_extension("tmp");
        let start = start.map(|start| start.to_string()).unwrap_or_default();
        let text = format!("{generation} {count} {start}\n");
        cannot("write", &temporary, self.files.write(&temporary, text.as_bytes()))?;
        cannot("rename", &temporary, self.files.rename(&temporary, &path))
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.files.kind(path).is_ok()
    }

    pub(super) fn place(&self) -> Place {
        match self.options.in_place {
            Some(_) => Place::InPlace,
            None => Place::Inside,
        }
    }

    /// Where the paths of a manifest begin.
    pub(super) fn base(&self, generation: u64) -> PathBuf {
        match &self.options.in_place {
            Some(root) => root.clone(),
            None => self.data_path(generation),
        }
    }

    /// The folder of a generation, where each rank's files are in a folder of its name.
    pub fn generation_path(&self, generation: u64) -> PathBuf {
        self.options.generation_path(generation)
    }

    /// The folder of this rank's files of a generation.
    pub fn data_path(&self, generation: u64) -> PathBuf {
        self.generation_path(generation)
            .join(rank_name(self.options.rank))
    }

    pub(super) fn manifest_path(&self, generation: u64) -> PathBuf {
        self.data_path(generation).with_extension("manifest")
    }

    pub(super) fn temporary_path(&self, generation: u64) -> PathBuf {
        self.data_path(generation).with_extension("manifest.tmp")
    }

    pub(super) fn retired_path(&self, generation: u64) -> PathBuf {
        self.data_path(generation).with_extension("retired")
    }

    pub(super) fn quarantine_path(&self) -> PathBuf {
        self.options.directory.join(QUARANTINE)
    }

    fn restarts_path(&self) -> PathBuf {
        let name = format!("restarts-{:05}", self.options.rank);
        self.options.directory.join(name)
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

/// Returns true if there is surely no manifest where none could be read; any other error may pass.
pub(super) fn is_no_manifest(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::FileTooLarge
    )
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

const RESTARTS_BYTES_MAX: usize = 64;
