//! A save on its way.

use std::{
    collections::BTreeSet,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use ropewalk_checkpoint_core::{Level, Manifest, Place, SavedFile, is_safe};

use super::{
    files::{EntryKind, Files},
    rank_files::RankFiles,
    store_error::{FILES_MAX, StoreError, cannot},
};

/// A save that was begun: where to write, and what to save besides.
#[derive(Debug)]
pub struct Save {
    generation: u64,
    step: u64,
    base: PathBuf,
    added: Vec<PathBuf>,
    is_kept: bool,
    level: Level,
}

impl Save {
    pub(super) fn new(generation: u64, step: u64, base: PathBuf) -> Self {
        Self {
            generation,
            step,
            base,
            added: Vec::new(),
            is_kept: false,
            level: Level::Full,
        }
    }

    /// The number of the generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The folder to write files and folders into. If files stay where the program writes them, the folder
    /// below which they are.
    pub fn folder(&self) -> &Path {
        &self.base
    }

    /// A file, or a folder with all that is in it, that belongs to the save, if files stay where the program writes
    /// them. Other saves hold all that is in their folder.
    ///
    /// # Errors
    /// If it is not below the store's folder for files in place.
    pub fn add(&mut self, path: &Path) -> Result<(), StoreError> {
        let inside = path.strip_prefix(&self.base).unwrap_or(path);
        if !is_safe(inside.as_os_str().as_bytes()) {
            return Err(StoreError::Outside {
                path: path.to_owned(),
                root: self.base.clone(),
            });
        }
        self.added.push(inside.to_owned());
        Ok(())
    }

    /// The files are also results of the program's: when this generation is old they stay where they are, if
    /// that is where the program writes them.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Sets the level of the save, which is a full one otherwise. If hosts copy each other's saves, a fast
    /// one stays on its own host, and is removed when there are newer ones. All ranks set the same level.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Brings all files to the disk and says what they are.
    pub(super) fn manifest<F: Files>(&self, rank_files: &RankFiles<F>) -> Result<Manifest, StoreError> {
        let mut walk = Walk {
            files: &rank_files.files,
            base: &self.base,
            manifest: Manifest {
                generation: self.generation,
                rank: rank_files.options.rank,
                ranks: rank_files.options.ranks,
                step: self.step,
                place: match rank_files.place() {
                    Place::InPlace if self.is_kept => Place::Kept,
                    place => place,
                },
                level: self.level,
                files: Vec::new(),
                empty_directories: Vec::new(),
            },
        };
        if walk.manifest.place == Place::Inside {
            walk.directory(&self.base)?;
        } else {
            let mut above = BTreeSet::new();
            for added in &self.added {
                let path = self.base.join(added);
                walk.path(&path)?;
                above.extend(
                    path.ancestors()
                        .skip(1)
                        .take_while(|folder| folder.starts_with(&self.base))
                        .map(Path::to_owned),
                );
            }
            for folder in above {
                cannot("bring to the disk", &folder, rank_files.files.sync(&folder))?;
            }
        }
        let mut manifest = walk.manifest;
        manifest.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        manifest.files.dedup_by(|a, b| a.path == b.path);
        manifest.empty_directories.sort_unstable();
        Ok(manifest)
    }
}

/// The way through all that is saved.
struct Walk<'a, F> {
    files: &'a F,
    base: &'a Path,
    manifest: Manifest,
}

impl<F: Files> Walk<'_, F> {
    fn path(&mut self, path: &Path) -> Result<(), StoreError> {
        match cannot("find", path, self.files.kind(path))? {
            EntryKind::Directory => self.directory(path),
            EntryKind::File => self.file(path),
            EntryKind::Other => Err(StoreError::NotAFile(path.to_owned())),
        }
    }

    fn directory(&mut self, path: &Path) -> Result<(), StoreError> {
        let entries = cannot("read the directory", path, self.files.list(path))?;
        if entries.is_empty() && path != self.base {
            self.manifest.empty_directories.push(self.inside(path));
        }
        for entry in entries {
            let inner = path.join(entry.name);
            match entry.kind {
                EntryKind::Directory => self.directory(&inner)?,
                EntryKind::File => self.file(&inner)?,
                EntryKind::Other => return Err(StoreError::NotAFile(inner)),
            }
        }
        cannot("bring to the disk", path, self.files.sync(path))
    }

    fn file(&mut self, path: &Path) -> Result<(), StoreError> {
        if self.manifest.files.len() + self.manifest.empty_directories.len() >= FILES_MAX {
            return Err(StoreError::TooManyFiles);
        }
        cannot("bring to the disk", path, self.files.sync(path))?;
        let (size, hash) = cannot("read", path, self.files.digest(path))?;
        self.manifest.files.push(SavedFile {
            path: self.inside(path),
            size,
            hash,
        });
        Ok(())
    }

    fn inside(&self, path: &Path) -> Vec<u8> {
        let inside = path.strip_prefix(self.base).unwrap_or(path);
        inside.as_os_str().to_owned().into_vec()
    }
}
