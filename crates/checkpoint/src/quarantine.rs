//! Putting aside what must not be restored, without losing it.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    files::Files,
    rank_files::RankFiles,
    store::{GENERATION, rank_name},
    store_error::{StoreError, cannot},
};

impl<F: Files> RankFiles<F> {
    /// Moves this rank's part of a generation to the folder `quarantine`, whatever there is of it, and says where. The
    /// manifest goes first, so that a part of it is never taken for the whole.
    ///
    /// # Errors
    /// If something cannot be moved, as from a disk that can only be read.
    pub(super) fn quarantine(&self, generation: u64, why: &str) -> Result<Option<PathBuf>, StoreError> {
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
        let name = Quarantined {
            generation,
            rank: self.options.rank,
            count: 1,
        }
        .name();
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
        self.trim_quarantine();
        Ok(Some(folder))
    }

    /// Removes this rank's oldest parts from the folder `quarantine`, in which two generations stay at most.
    /// Parts that cannot be removed now are removed the next time.
    pub(super) fn trim_quarantine(&self) {
        let quarantine = self.quarantine_path();
        let found: Vec<Quarantined> = self
            .files
            .list(&quarantine)
            .unwrap_or_default()
            .iter()
            .filter_map(|entry| Quarantined::parse(entry.name.to_str()?))
            .collect();
        let generations: BTreeSet<u64> = found.iter().map(|part| part.generation).collect();
        let oldest = generations.iter().rev().nth(QUARANTINE_MAX - 1);
        let mut own: Vec<&Quarantined> = found
            .iter()
            .filter(|part| part.rank == self.options.rank)
            .collect();
        own.sort_unstable_by_key(|part| (part.generation, part.count));
        let many = own.len().saturating_sub(QUARANTINE_MAX);
        for (at, part) in own.into_iter().enumerate() {
            if at < many || Some(&part.generation) < oldest {
                let _ = self.remove_tree(&quarantine.join(part.name()));
            }
        }
    }

    /// Moves a file or folder that belongs to no generation to the folder `quarantine`, and says where.
    ///
    /// # Errors
    /// If it cannot be moved.
    pub(super) fn quarantine_path_of(&self, path: &Path, why: &str) -> Result<PathBuf, StoreError> {
        let name = path.file_name().unwrap_or(OsStr::new("unnamed"));
        let folder = self.quarantine_folder(&format!("uncommitted.{}", rank_name(self.options.rank)), why)?;
        let to = folder.join(name);
        self.move_to(path, &to)?;
        Ok(to)
    }

    /// A new folder in quarantine with a note that says why.
    fn quarantine_folder(&self, name: &str, why: &str) -> Result<PathBuf, StoreError> {
        let quarantine = self.quarantine_path();
        let found = self.files.list(&quarantine).unwrap_or_default();
        // Later ones have higher numbers, also when earlier ones are removed.
        let last = found.iter().filter_map(|entry| {
            let rest = entry.name.to_str()?.strip_prefix(name)?;
            match rest.strip_prefix('.') {
                Some(count) => count.parse::<u64>().ok(),
                None => rest.is_empty().then_some(1),
            }
        });
        let folder = match last.max() {
            None => quarantine.join(name),
            Some(last) => quarantine.join(format!("{name}.{}", last.saturating_add(1))),
        };
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

/// A rank's part of a generation in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quarantined {
    pub(super) generation: u64,
    pub(super) rank: u32,
    /// How many of that name there were, this one included.
    count: u64,
}

impl Quarantined {
    /// Reads the name of a folder in quarantine; nothing if it is something else.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(GENERATION)?.split('.');
        let generation = parts.next()?.parse().ok()?;
        let rank = parts.next()?.strip_prefix("rank-")?.parse().ok()?;
        let count = parts.next().map_or(Some(1), |count| count.parse().ok())?;
        let found = Self {
            generation,
            rank,
            count,
        };
        (found.name() == name).then_some(found)
    }

    fn name(&self) -> String {
        let name = format!("{GENERATION}{:010}.{}", self.generation, rank_name(self.rank));
        match self.count {
            1 => name,
            count => format!("{name}.{count}"),
        }
    }
}

/// How many generations stay in quarantine: enough to see what was wrong, and no more room than that.
const QUARANTINE_MAX: usize = 2;
