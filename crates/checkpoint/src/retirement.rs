//! Removing old generations.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{KEEP_MIN, Manifest, Place, retirable};

use super::{
    files::{EntryKind, Files},
    rank_files::RankFiles,
    store::{Store, held, rank_name},
    store_error::{StoreError, cannot},
};

impl<F: Files> Store<F> {
    /// Removes this rank's oldest generations: those older than as many as are to be kept that are complete
    /// on all ranks of this directory, of which this process has hashed its own part. Returns their numbers.
    /// Does nothing if somebody else [decides](super::StoreOptions::decided).
    ///
    /// # Errors
    /// If the directory cannot be read or something not be removed.
    pub fn retire(&mut self) -> Result<Vec<u64>, StoreError> {
        if self.options().decided.is_some() {
            return Ok(Vec::new());
        }
        let complete = self.complete_here()?;
        self.retire_beyond(&complete)
    }

    /// As many of the newest generations as are to be kept that are complete on all ranks of this directory, of which
    /// this process has hashed its own part.
    pub(super) fn complete_here(&mut self) -> Result<BTreeSet<u64>, StoreError> {
        let mut complete = BTreeSet::new();
        for generation in self.files.generations()?.into_iter().rev() {
            if complete.len() >= self.options().keep.max(KEEP_MIN) {
                break;
            }
            if self.files.is_complete_here(generation)? && self.is_known_whole(generation) {
                complete.insert(generation);
            }
        }
        Ok(complete)
    }

    /// The same if only the ranks together know which generations are complete, each having a directory of its own.
    ///
    /// # Errors
    /// If the directory cannot be read or something not be removed.
    pub fn retire_beyond(&mut self, complete: &BTreeSet<u64>) -> Result<Vec<u64>, StoreError> {
        let committed = |generation: &u64| self.files.exists(&self.files.manifest_path(*generation));
        let own: BTreeSet<u64> = self.files.generations()?.into_iter().filter(committed).collect();
        let retired = retirable(&own, complete, self.options().keep);
        for &generation in &retired {
            self.retire_one(generation)?;
        }
        Ok(retired)
    }

    /// Removes this rank's part of a generation.
    pub(super) fn retire_one(&mut self, generation: u64) -> Result<(), StoreError> {
        self.whole.retain(|held| held.generation != generation);
        self.files.retire(generation)
    }

    fn is_known_whole(&mut self, generation: u64) -> bool {
        let known = self.whole.iter().find(|held| held.generation == generation);
        let found = match known {
            Some(&known) => Some(known),
            None => self.files.whole_manifest(generation).as_ref().map(held),
        };
        if known.is_none() {
            self.whole.extend(found);
        }
        // In a job of another size others have parts of it too.
        found.is_some_and(|held| held.ranks == self.options().ranks)
    }
}

impl<F: Files> RankFiles<F> {
    /// Returns true if every rank has a manifest in this generation's folder.
    fn is_complete_here(&self, generation: u64) -> Result<bool, StoreError> {
        let folder = self.generation_path(generation);
        let names = cannot("read the directory", &folder, self.files.list(&folder))?;
        Ok((0..self.options.ranks).all(|rank| {
            let name = format!("{}.manifest", rank_name(rank));
            names.iter().any(|entry| entry.name == *name)
        }))
    }

    /// Removes this rank's part of a generation.
    fn retire(&self, generation: u64) -> Result<(), StoreError> {
        let [from, to] = [self.manifest_path(generation), self.retired_path(generation)];
        match self.files.rename(&from, &to) {
            // Somebody else removes it, or has.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => cannot("rename", &from, renamed)?,
        }
        match self.finish_retirement(generation) {
            Err(_) if !self.exists(&to) => Ok(()),
            finished => finished,
        }
    }

    /// Removes what is left of a generation whose manifest says so by its name.
    pub(super) fn finish_retirement(&self, generation: u64) -> Result<(), StoreError> {
        let retired = self.retired_path(generation);
        if let Some(manifest) = self.read_manifest(&retired)?
            && manifest.place == Place::InPlace
        {
            self.remove_listed(&manifest)?;
        }
        self.remove_tree(&self.data_path(generation))?;
        cannot("remove", &retired, self.files.remove_file(&retired))?;
        // Other ranks may still have theirs in it.
        let _ = self.files.remove_directory(&self.generation_path(generation));
        Ok(())
    }

    /// Removes the files that a manifest lists, and folders that become empty, unless another one lists them
    /// too, if only that of a save on its way.
    fn remove_listed(&self, manifest: &Manifest) -> Result<(), StoreError> {
        // Those on their way first: what exists by now was one of them before.
        let mut kept = self.listed_paths(Self::temporary_path)?;
        kept.append(&mut self.listed_paths(Self::manifest_path)?);
        let base = self.base(manifest.generation);
        for file in manifest.files.iter().filter(|file| !kept.contains(&file.path)) {
            let path = base.join(OsStr::from_bytes(&file.path));
            match self.files.remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return cannot("remove", path, Err(error));
                }
                _ => {}
            }
            let above = path.ancestors().skip(1);
            for folder in above.take_while(|folder| *folder != base && folder.starts_with(&base)) {
                let inside = folder.strip_prefix(&base).unwrap_or(folder);
                // It stays as long as there is something in it, or another one lists it as empty.
                if kept.contains(inside.as_os_str().as_bytes())
                    || self.files.remove_directory(folder).is_err()
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The paths of all files and empty directories that this rank's manifests of some name list.
    pub(super) fn listed_paths(
        &self,
        name: impl Fn(&Self, u64) -> PathBuf,
    ) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut paths = BTreeSet::new();
        for generation in self.generations()? {
            let manifest = self.read_manifest(&name(self, generation))?;
            let Some(manifest) = manifest else { continue };
            paths.extend(manifest.files.into_iter().map(|file| file.path));
            paths.extend(manifest.empty_directories);
        }
        Ok(paths)
    }

    pub(super) fn remove_tree(&self, path: &Path) -> Result<(), StoreError> {
        let entries = match self.files.list(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => cannot("read the directory", path, entries)?,
        };
        for entry in entries {
            let inner = path.join(entry.name);
            match entry.kind {
                EntryKind::Directory => self.remove_tree(&inner)?,
                _ => cannot("remove", &inner, unless_gone(self.files.remove_file(&inner)))?,
            }
        }
        cannot("remove", path, unless_gone(self.files.remove_directory(path)))
    }
}

/// Somebody else who opens the store may bring the same removal to its end.
fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
