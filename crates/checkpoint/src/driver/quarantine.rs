//! Putting aside what must not be restored, without losing it.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    files::Files,
    store::{GENERATION, Store, rank_name},
    store_error::{StoreError, cannot},
};

impl<F: Files> Store<F> {
    /// Moves this rank's part of a generation to the folder `quarantine`, whatever there is of it, and says where. The
    /// manifest goes first, so that a part of it is never taken for the whole.
    ///
    /// # Errors
    /// If something cannot be moved, as from a disk that can only be read.
    pub fn quarantine(&mut self, generation: u64, why: &str) -> Result<Option<PathBuf>, StoreError> {
        self.whole.retain(|held| held.generation != generation);
        let listed = self
            .manifest(generation)
            .filter(|_| self.options.in_place.is_some());
        let data = self.data_path(generation);
        let pieces: Vec<(PathBuf, PathBuf)> = [
            (self.manifest_path(generation), "manifest".into()),
            (self.temporary_path(generation), "manifest.tmp".into()),
            (data, rank_name(self.options.rank).into()),
        ]
        .into_iter()
        .filter(|(path, _)| self.exists(path))
        .collect();
        if pieces.is_empty() {
            let _ = self.files.remove_directory(&self.generation_path(generation));
            return Ok(None);
        }
        let name = format!("{GENERATION}{generation:010}.{}", rank_name(self.options.rank));
        let folder = self.quarantine_folder(&name, why)?;
        for (path, name) in pieces {
            self.move_to(&path, &folder.join(name))?;
        }
        let base = self.base(generation);
        // Its manifest is gone by now: these are files that another generation needs too.
        let shared = self.listed_paths(Self::manifest_path)?;
        let files = listed.iter().flat_map(|manifest| &manifest.files);
        for file in files.filter(|file| !shared.contains(&file.path)) {
            let inside = Path::new(OsStr::from_bytes(&file.path));
            let path = base.join(inside);
            if self.exists(&path) {
                self.move_to(&path, &folder.join("files").join(inside))?;
            }
        }
        // Other ranks may still have theirs in it.
        let _ = self.files.remove_directory(&self.generation_path(generation));
        Ok(Some(folder))
    }

    /// Moves a file or folder that belongs to no generation to the folder `quarantine`, and says where.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub fn quarantine_path_of(&mut self, path: &Path, why: &str) -> Result<PathBuf, StoreError> {
        let name = path.file_name().unwrap_or(OsStr::new("unnamed"));
        let folder = self.quarantine_folder(&format!("uncommitted.{}", rank_name(self.options.rank)), why)?;
        let to = folder.join(name);
        self.move_to(path, &to)?;
        Ok(to)
    }

    /// A new folder in quarantine with a note that says why.
    fn quarantine_folder(&self, name: &str, why: &str) -> Result<PathBuf, StoreError> {
        let quarantine = self.quarantine_path();
        let mut names = (1..).map(|count| match count {
            1 => quarantine.join(name),
            count => quarantine.join(format!("{name}.{count}")),
        });
        let folder = names
            .find(|path| !self.exists(path))
            .expect("a folder has fewer names than there are numbers");
        cannot("make the directory", &folder, self.files.make_directory(&folder))?;
        let note = folder.join("why");
        cannot(
            "write",
            &note,
            self.files.write(&note, format!("{why}\n").as_bytes()),
        )?;
        Ok(folder)
    }

    fn move_to(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        if let Some(folder) = to.parent() {
            cannot("make the directory", folder, self.files.make_directory(folder))?;
        }
        cannot("move to quarantine", from, self.files.rename(from, to))
    }
}
