//! Where saves are while no job runs: out of the user's results.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use ropewalk_checkpoint::{Manifest, Place};

use crate::{
    case::{Case, file, names},
    case_error::CaseError,
    times::Time,
};

impl Case {
    /// Moves the saves that are no outputs of the user's out of the case, into the folder `parked` of the
    /// checkpoints. [`unpark`](Self::unpark) moves them back.
    pub(crate) fn park(&self) -> Result<(), CaseError> {
        let manifests = self.manifests()?.unwrap_or_default();
        let folders = |place: Place| -> BTreeSet<PathBuf> {
            let placed = manifests.iter().filter(|manifest| manifest.place == place);
            placed.flat_map(saved_folders).collect()
        };
        let kept = folders(Place::Kept);
        for folder in folders(Place::InPlace).difference(&kept) {
            move_folder(&self.root().join(folder), &self.parked().join(folder))?;
        }
        Ok(())
    }

    /// Moves parked saves back to where the store and the solver look for them; to be called before either
    /// does.
    ///
    /// # Errors
    /// If a folder cannot be read or moved.
    pub fn unpark(&self) -> Result<(), CaseError> {
        let parked = self.parked();
        if !parked.exists() {
            return Ok(());
        }
        for name in names(&parked)? {
            let below = match Time::parse(&name) {
                Some(_) => vec![PathBuf::from(name)],
                None => {
                    let times = names(&parked.join(&name))?;
                    times.iter().map(|time| Path::new(&name).join(time)).collect()
                }
            };
            for folder in below {
                move_folder(&parked.join(&folder), &self.root().join(&folder))?;
            }
        }
        file("remove", &parked, fs::remove_dir_all(&parked))
    }

    fn parked(&self) -> PathBuf {
        self.directory().join("parked")
    }
}

/// The folders of times that a manifest has files in, `0.1` or `processor0/0.1` for example.
fn saved_folders(manifest: &Manifest) -> BTreeSet<PathBuf> {
    let paths = manifest
        .files
        .iter()
        .filter_map(|saved| std::str::from_utf8(&saved.path).ok());
    let folder = |path: &str| {
        let parts: Vec<&str> = path.split('/').collect();
        let at = parts
            .iter()
            .take(2)
            .position(|part| Time::parse(part).is_some())?;
        Some(parts[..=at].iter().collect())
    };
    paths.filter_map(folder).collect()
}

/// Moves a folder, if it is there and the other is not: who finds both has written one of them since.
fn move_folder(from: &Path, to: &Path) -> Result<(), CaseError> {
    if !from.is_dir() || to.exists() {
        return Ok(());
    }
    if let Some(above) = to.parent() {
        file("make the folder", above, fs::create_dir_all(above))?;
    }
    file("move", from, fs::rename(from, to))
}

#[cfg(test)]
mod tests {
    use ropewalk_checkpoint::{Level, SavedFile};

    use super::*;
    use crate::case::CaseOptions;

    fn manifest(generation: u64, place: Place, path: &str) -> Manifest {
        Manifest {
            generation,
            rank: 0,
            ranks: 1,
            step: generation,
            place,
            level: Level::Full,
            files: vec![SavedFile {
                path: path.as_bytes().to_owned(),
                size: 0,
                hash: [0; 32],
            }],
            empty_directories: Vec::new(),
        }
    }

    /// Between jobs only the user's outputs are in the case, and the next job finds the saves where they
    /// were.
    #[test]
    fn saves_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let saved = [
            manifest(1, Place::InPlace, "processor0/0.1/uniform/time"),
            manifest(2, Place::Kept, "processor0/0.2/U"),
            manifest(3, Place::InPlace, "0.3/U"),
        ];
        for manifest in &saved {
            let generation = root.join(format!("checkpoints/generation-{:010}", manifest.generation));
            fs::create_dir_all(&generation).unwrap();
            fs::write(generation.join("rank-00000.manifest"), manifest.encode()).unwrap();
            let path = root.join(std::str::from_utf8(&manifest.files[0].path).unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::create_dir(root.join("system")).unwrap();
        fs::write(root.join("system/controlDict"), "").unwrap();
        let case = Case::open(root, CaseOptions::new("lib.so")).unwrap();
        let times = ["processor0/0.1/uniform/time", "processor0/0.2/U", "0.3/U"];
        let there = || times.map(|time| root.join(time).exists());
        case.park().unwrap();
        assert_eq!(there(), [false, true, false]);
        // As after a job that was killed in the middle of it.
        case.park().unwrap();
        case.unpark().unwrap();
        assert_eq!(there(), [true; 3]);
        case.unpark().unwrap();
        assert!(!root.join("checkpoints/parked").exists());
    }
}
