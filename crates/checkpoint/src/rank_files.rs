//! The files of one rank's checkpoints: their names, what is there, and how that is written.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{MANIFEST_BYTES_MAX, Manifest, Place, Restarts, SavedFile};

use super::{
    files::{EntryKind, Files},
    journal_file::is_for_lack_of_room,
    quarantine::Quarantined,
    restore::RANKS_MAX,
    save::Save,
    saver_lock::SaverLock,
    store::{GENERATION, QUARANTINE, StoreOptions, rank_name},
    store_error::{StoreError, cannot},
};

/// The files of one rank's checkpoints.
#[derive(Clone, Debug)]
pub(super) struct RankFiles<F> {
    pub(super) files: F,
    pub(super) options: StoreOptions,
}

impl<F: Files> RankFiles<F> {
    /// Makes the folder of a save.
    pub(super) fn stage(&self, generation: u64, step: u64) -> Result<Save, StoreError> {
        let folder = match self.place() {
            Place::Inside => self.data_path(generation),
            Place::InPlace | Place::Kept => self.generation_path(generation),
        };
        cannot("make the directory", &folder, self.files.make_directory(&folder))?;
        Ok(Save::new(generation, step, self.base(generation)))
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

    /// Abandons a save that could not be committed, unless it exists all the same: others may have been told
    /// of it by now.
    pub(super) fn give_up(&self, save: Save) {
        if !self.exists(&self.manifest_path(save.generation())) {
            self.abandon(save);
        }
    }

    /// Gives a save up and removes what was written of it (in place, files stay where they are).
    pub(super) fn abandon(&self, save: Save) {
        let generation = save.generation();
        for path in [self.manifest_path(generation), self.temporary_path(generation)] {
            let _ = self.files.remove_file(&path);
        }
        // What cannot be removed now is moved to quarantine at the next restart.
        let _ = self.remove_tree(&self.data_path(generation));
        let _ = self.files.remove_directory(&self.generation_path(generation));
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

    /// One more than the highest number of a rank that has a part here, of a generation or in quarantine.
    pub(super) fn rank_numbers(&self) -> Result<u32, StoreError> {
        let mut highest = None;
        for generation in self.generations()? {
            let entries = self
                .files
                .list(&self.generation_path(generation))
                .unwrap_or_default();
            let of_entry = |name: &str| name.strip_prefix("rank-")?.split('.').next()?.parse::<u32>().ok();
            highest = highest.max(
                entries
                    .iter()
                    .filter_map(|entry| of_entry(entry.name.to_str()?))
                    .max(),
            );
        }
        let entries = self.files.list(&self.quarantine_path()).unwrap_or_default();
        let of_entry = |name: &str| Some(Quarantined::parse(name)?.rank);
        highest = highest.max(
            entries
                .iter()
                .filter_map(|entry| of_entry(entry.name.to_str()?))
                .max(),
        );
        Ok(highest
            .map_or(0, |highest| highest.saturating_add(1))
            .min(RANKS_MAX))
    }

    /// The highest number of all that have a folder here or in quarantine.
    pub(super) fn highest(&self) -> Result<u64, StoreError> {
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

    /// The manifest of a generation, if all that it lists is as it was saved.
    pub(super) fn whole_manifest(&self, generation: u64) -> Option<Manifest> {
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

    /// How often earlier starts began from a generation. This one does not count, though its supervisor has noted it.
    pub(super) fn restarts(&self) -> Option<Restarts> {
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

    /// Takes back the count of one start from a generation.
    pub(super) fn forget_restart(&self, generation: u64) -> Result<(), StoreError> {
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

    /// The lock of the rank.
    pub(super) fn lock(&self) -> Result<SaverLock, StoreError> {
        SaverLock::take(&self.files, &self.options)
    }

    /// The lock of the rank for a restore: without it, the unfinished save of a living saver would be taken for torn.
    /// `None` if this process cannot write, and so can neither move nor count anything.
    pub(super) fn restoring_lock(&self) -> Result<Option<SaverLock>, StoreError> {
        match self.lock() {
            Err(StoreError::Files { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) || is_for_lack_of_room(&source) =>
            {
                Ok(None)
            }
            taken => taken.map(Some),
        }
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
    pub(super) fn generation_path(&self, generation: u64) -> PathBuf {
        self.options.generation_path(generation)
    }

    /// The folder of this rank's files of a generation.
    pub(super) fn data_path(&self, generation: u64) -> PathBuf {
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

/// Returns true if there is surely no manifest where none could be read; any other error may pass.
pub(super) fn is_no_manifest(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::FileTooLarge
    )
}

const RESTARTS_BYTES_MAX: usize = 64;
