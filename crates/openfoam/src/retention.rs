//! How much stays on the disk of what a case no longer needs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use ropewalk_checkpoint::{MANIFEST_BYTES_MAX, Manifest, Place};

use crate::{
    case::{Case, file, names, time_of, times},
    case_error::CaseError,
    control_dict::Entries,
    times::outdated,
};

impl Case {
    /// Removes outputs of the run that the user does not want any more: OpenFOAM counts those of `purgeWrite`
    /// in each process, so that after each restart as many older ones would stay. To be called when the run
    /// has come to its end; [`prepare`](Self::prepare) does the same. Says what was removed.
    ///
    /// # Errors
    /// If something cannot be read or removed.
    pub fn purge(&self) -> Result<Vec<PathBuf>, CaseError> {
        let keep = Entries::read(&self.control()?).purge_write;
        let (Ok(keep @ 1..), Some(origin), Some(saved)) =
            (usize::try_from(keep), self.noted_origin(), self.saved_times()?)
        else {
            return Ok(Vec::new());
        };
        let mut removed = Vec::new();
        for (_, place) in self.places()? {
            for time in outdated(times(&place)?, &origin, &saved, keep) {
                let path = place.join(time.name());
                file("remove the output", &path, fs::remove_dir_all(&path))?;
                removed.push(path);
            }
        }
        Ok(removed)
    }

    /// The names of the user's outputs, oldest first, if older ones are to be removed.
    pub(crate) fn purgeable_outputs(&self) -> Result<Vec<String>, CaseError> {
        let keep = Entries::read(&self.control()?).purge_write;
        let (1.., Some(origin), Some(manifests)) = (keep, self.noted_origin(), self.manifests()?) else {
            return Ok(Vec::new());
        };
        // An output that also serves as a save stays the user's, and is removed as he says.
        let ours = manifests.iter().filter(|manifest| manifest.place != Place::Kept);
        let saved = ours
            .filter_map(time_of)
            .map(|time| time.name().to_owned())
            .collect();
        let Some((_, place)) = self.places()?.into_iter().next() else {
            return Ok(Vec::new());
        };
        let outputs = outdated(times(&place)?, &origin, &saved, 0);
        Ok(outputs.iter().map(|time| time.name().to_owned()).collect())
    }

    /// The names of the times that are checkpoints; nothing if one of them cannot be read.
    fn saved_times(&self) -> Result<Option<BTreeSet<String>>, CaseError> {
        let Some(manifests) = self.manifests()? else {
            return Ok(None);
        };
        let times = manifests.iter().filter_map(time_of);
        Ok(Some(times.map(|time| time.name().to_owned()).collect()))
    }

    /// The manifests of all ranks; nothing if one of them cannot be read.
    pub(crate) fn manifests(&self) -> Result<Option<Vec<Manifest>>, CaseError> {
        let mut manifests = Vec::new();
        let directory = self.directory();
        for generation in names(&directory)? {
            if !generation.starts_with("generation-") {
                continue;
            }
            let folder = directory.join(generation);
            for name in names(&folder)?.iter().filter(|name| name.ends_with(".manifest")) {
                let path = folder.join(name);
                let length = fs::metadata(&path).map_or(u64::MAX, |data| data.len());
                if length > MANIFEST_BYTES_MAX as u64 {
                    return Ok(None);
                }
                let text = fs::read(&path).ok();
                match text.and_then(|text| Manifest::parse(&text).ok()) {
                    Some(manifest) => manifests.push(manifest),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(manifests))
    }

    /// Removes the oldest of what was put aside, but nothing that was there before the run. Says how much.
    pub(crate) fn trim_quarantine(&self, ranks: usize) -> Result<usize, CaseError> {
        let quarantine = self.directory().join("quarantine");
        if !quarantine.exists() {
            return Ok(0);
        }
        let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
        for name in names(&quarantine)? {
            let path = quarantine.join(name);
            let changed = file(
                "look at",
                &path,
                fs::metadata(&path).and_then(|data| data.modified()),
            )?;
            if !path.join(STAYS).exists() {
                found.push((changed, path));
            }
        }
        found.sort_unstable();
        found.truncate(found.len().saturating_sub(QUARANTINE_MAX * ranks));
        for (_, path) in &found {
            file("remove", path, fs::remove_dir_all(path))?;
        }
        Ok(found.len())
    }
}

/// Notes that a folder in quarantine has what was there before the run: only the user knows what it is good for.
pub(crate) fn let_stay(folder: &Path) -> Result<(), CaseError> {
    let path = folder.join(STAYS);
    file(
        "write",
        &path,
        fs::write(&path, "what was there before the run is not removed\n"),
    )
}

/// How many things that were put aside stay for each rank.
pub const QUARANTINE_MAX: usize = 8;

const STAYS: &str = "stays";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::CaseOptions;

    /// A case that began at 0 and has outputs up to 0.4.
    fn case(folder: &Path) -> Case {
        for name in [
            "system",
            "checkpoints/quarantine",
            "0",
            "0.1",
            "0.2",
            "0.3",
            "0.4",
        ] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("system/controlDict"), "purgeWrite 2;\n").unwrap();
        fs::write(folder.join("checkpoints/origin"), "0\n").unwrap();
        Case::open(folder, CaseOptions::new("lib.so")).unwrap()
    }

    /// As many outputs stay as the user wants, and none is removed while it is unclear which are saves.
    #[test]
    fn outputs_are_purged() {
        let folder = tempfile::tempdir().unwrap();
        let case = case(folder.path());
        let there = |names: &[&str]| names.iter().all(|name| folder.path().join(name).exists());
        let generation = folder.path().join("checkpoints/generation-0000000001");
        fs::create_dir(&generation).unwrap();
        fs::write(generation.join("rank-00000.manifest"), "no manifest").unwrap();
        assert!(case.purge().unwrap().is_empty());
        fs::remove_dir_all(generation).unwrap();
        assert_eq!(case.purge().unwrap().len(), 2);
        assert!(there(&["0", "0.3", "0.4"]) && !there(&["0.1"]) && !there(&["0.2"]));
    }

    /// The newest things in quarantine stay, and what was there before the run.
    #[test]
    fn quarantine_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let case = case(folder.path());
        let path = |number: usize| folder.path().join(format!("checkpoints/quarantine/{number}"));
        for number in 0..QUARANTINE_MAX + 3 {
            fs::create_dir(path(number)).unwrap();
            if number == 0 {
                let_stay(&path(0)).unwrap();
            }
            let age = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            fs::File::open(path(number)).unwrap().set_modified(age).unwrap();
        }
        assert_eq!(case.trim_quarantine(1).unwrap(), 2);
        let stays: Vec<bool> = (0..4).map(|number| path(number).exists()).collect();
        assert_eq!(stays, [true, false, false, true]);
        assert_eq!(case.trim_quarantine(1).unwrap(), 0);
    }
}
