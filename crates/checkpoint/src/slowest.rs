//! How much longer other ranks need for a save than the rank that measures it.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use ropewalk_checkpoint_core::Level;

use super::{
    files::{Entry, Files, RealFiles},
    store::GENERATION,
};

/// Looks when the slowest rank has committed a save. The ranks go on together, so the others wait for it in
/// their next step, which is none of the step's time. Nothing is asked of the other ranks: their manifests
/// tell, if this process sees the directory in which they are.
#[derive(Debug)]
pub(super) struct Slowest {
    directory: PathBuf,
    awaited: Option<Awaited>,
}

#[derive(Debug)]
struct Awaited {
    level: Level,
    folder: PathBuf,
    ranks: usize,
    /// When this rank was done, by the clock of the file system.
    done: SystemTime,
    looked: Option<f64>,
}

impl Slowest {
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            awaited: None,
        }
    }

    /// This rank is done with a save, for which it needed so many seconds.
    pub(super) fn saved(&mut self, level: Level, took: f64) {
        // What cannot be read is not measured.
        self.awaited = self.newest().ok().flatten().and_then(|(folder, ranks)| {
            let (count, changed) = committed(&folder).ok()?;
            // If all are done this rank has waited for them.
            (count < ranks).then(|| Awaited {
                level,
                folder,
                ranks,
                done: done(changed, took),
                looked: None,
            })
        });
    }

    /// How many seconds the slowest rank needed longer, and for what, once it is done. Told once.
    pub(super) fn look(&mut self, now: f64) -> Option<(Level, f64)> {
        let awaited = self.awaited.as_mut()?;
        if awaited.looked.is_some_and(|looked| now - looked < LOOK) {
            return None;
        }
        awaited.looked = Some(now);
        let (count, changed) = committed(&awaited.folder).ok()?;
        if count < awaited.ranks {
            return None;
        }
        let longer = changed.duration_since(awaited.done).unwrap_or_default();
        let level = awaited.level;
        self.awaited = None;
        Some((level, longer.as_secs_f64()))
    }

    /// The newest generation of which a rank has a manifest, and how many ranks that says there are.
    fn newest(&self) -> io::Result<Option<(PathBuf, usize)>> {
        let mut generations: Vec<_> = RealFiles
            .list(&self.directory)?
            .into_iter()
            .filter_map(|entry| {
                let number: u64 = entry.name.to_str()?.strip_prefix(GENERATION)?.parse().ok()?;
                Some((number, entry.name))
            })
            .collect();
        generations.sort_unstable();
        for (_, name) in generations.into_iter().rev() {
            let folder = self.directory.join(name);
            let manifest = RealFiles.list(&folder)?.into_iter().find(is_manifest);
            if let Some(manifest) = manifest {
                let ranks = ranks(&folder.join(manifest.name))?;
                return Ok(ranks.filter(|&ranks| ranks > 1).map(|ranks| (folder, ranks)));
            }
        }
        Ok(None)
    }
}

/// How many ranks have committed their part of a generation, and when something changed there the last time.
fn committed(folder: &Path) -> io::Result<(usize, SystemTime)> {
    let count = RealFiles
        .list(folder)?
        .iter()
        .filter(|entry| is_manifest(entry))
        .count();
    Ok((count, fs::metadata(folder)?.modified()?))
}

fn is_manifest(entry: &Entry) -> bool {
    Path::new(&entry.name).extension() == Some("manifest".as_ref())
}

/// Reads the number of ranks in the first lines of a manifest: the whole may be long.
fn ranks(manifest: &Path) -> io::Result<Option<usize>> {
    let mut head = Vec::new();
    File::open(manifest)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    let head = String::from_utf8_lossy(&head);
    let line = head.lines().find_map(|line| line.strip_prefix("rank "));
    Ok(line.and_then(|line| line.split_once(" of ")?.1.parse().ok()))
}

/// Now, by the clock of a file system in which something changed during a save of so many seconds: that clock
/// may be another host's.
fn done(changed: SystemTime, took: f64) -> SystemTime {
    let now = SystemTime::now();
    let recent = Duration::try_from_secs_f64(took).unwrap_or_default() + CLOCKS_DIFFER;
    match now.duration_since(changed) {
        Ok(age) if age <= recent => now,
        _ => changed,
    }
}

/// Between two looks.
const LOOK: f64 = 0.02;

/// Clocks that differ by more are not compared.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

/// The lines before the list of files are shorter.
const HEAD_BYTES: u64 = 256;

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;
    use crate::{Store, StoreOptions};

    fn store(directory: &Path, rank: u32, ranks: u32) -> Store {
        Store::open(StoreOptions {
            rank,
            ranks,
            ..StoreOptions::new(directory)
        })
        .unwrap()
    }

    fn save(store: &mut Store) {
        let save = store.begin(1).unwrap();
        fs::write(save.folder().join("state"), "x").unwrap();
        store.commit(save).unwrap();
    }

    /// The time that the slowest rank needs longer is told once, when it is done; a rank alone, and one that has waited
    /// for the others, hear nothing.
    #[test]
    fn the_slowest_rank_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let mut slowest = Slowest::of(folder.path());
        slowest.saved(Level::Full, 0.1);
        assert_eq!(slowest.look(0.0), None);
        let [mut first, mut second] = [0, 1].map(|rank| store(folder.path(), rank, 2));
        save(&mut first);
        slowest.saved(Level::Full, 0.1);
        assert_eq!(slowest.look(0.0), None);
        sleep(Duration::from_millis(200));
        save(&mut second);
        assert_eq!(slowest.look(0.01), None, "it is too early to look");
        let (level, longer) = slowest.look(0.3).unwrap();
        assert!(level == Level::Full && longer >= 0.15, "{longer}");
        assert_eq!(slowest.look(0.6), None);
        save(&mut first);
        save(&mut second);
        slowest.saved(Level::Full, 0.1);
        assert_eq!(slowest.look(0.9), None);
    }
}
