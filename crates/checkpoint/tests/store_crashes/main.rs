//! The store on a disk that crashes at every possible moment, and in every way that a disk may.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crashing_files;

use std::path::{Path, PathBuf};

use crashing_files::{CrashingFiles, Loss};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use ropewalk_checkpoint::{Files, Restored, Store, StoreError, StoreOptions, restore_all};

const DIRECTORY: &str = "/scratch/checkpoints";
const CASE: &str = "/scratch/case";

/// A program of some ranks that saves two files each.
#[derive(Clone, Copy, Debug)]
struct Program {
    ranks: u32,
    in_place: bool,
}

/// The progress of a program.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// The last step that all ranks have committed.
    committed: u64,
    /// The last one that somebody began to save.
    begun: u64,
}

fn content(step: u64, rank: u32, name: &str) -> Vec<u8> {
    format!("{name} of rank {rank} at step {step}, and some more to be torn").into_bytes()
}

impl Program {
    fn stores(self, files: &CrashingFiles) -> Result<Vec<Store<CrashingFiles>>, StoreError> {
        (0..self.ranks)
            .map(|rank| {
                let options = StoreOptions {
                    rank,
                    ranks: self.ranks,
                    in_place: self.in_place.then(|| PathBuf::from(CASE)),
                    ..StoreOptions::new(DIRECTORY)
                };
                Store::open_in(files.clone(), options)
            })
            .collect()
    }

    fn restore(
        self,
        files: &CrashingFiles,
    ) -> Result<(Vec<Store<CrashingFiles>>, Vec<Restored>), StoreError> {
        let mut stores = self.stores(files)?;
        let restored = restore_all(&mut stores)?;
        Ok((stores, restored))
    }

    /// Saves one step on all ranks, as far as the disk lets it.
    fn save(
        self,
        files: &CrashingFiles,
        stores: &mut [Store<CrashingFiles>],
        step: u64,
        progress: &mut Progress,
    ) -> Result<(), StoreError> {
        progress.begun = step;
        let mut saves = Vec::new();
        for (store, rank) in stores.iter_mut().zip(0..) {
            let mut save = store.begin(step)?;
            for path in self.paths(save.folder(), step, rank) {
                let name = path.file_name().unwrap().to_str().unwrap();
                // A program does not care whether what it writes is on the disk.
                let written = files
                    .make_directory(path.parent().unwrap())
                    .and_then(|()| files.write(&path, &content(step, rank, name)));
                written.map_err(|source| StoreError::Files {
                    action: "write",
                    path: path.clone(),
                    source,
                })?;
                if self.in_place {
                    save.add(&path)?;
                }
            }
            saves.push(save);
        }
        for (store, save) in stores.iter_mut().zip(saves) {
            store.commit(save)?;
        }
        progress.committed = step;
        for store in stores {
            store.retire()?;
        }
        Ok(())
    }

    fn paths(self, folder: &Path, step: u64, rank: u32) -> [PathBuf; 2] {
        let folder = match self.in_place {
            true => folder.join(format!("processor{rank}/{step}")),
            false => folder.to_owned(),
        };
        [folder.join("pressure"), folder.join("uniform/time")]
    }

    /// Checks that one step is restored, whole, on all ranks, and none older than the last committed one.
    fn check(self, files: &CrashingFiles, restored: &[Restored], progress: Progress, how: &str) {
        let steps: Vec<_> = restored
            .iter()
            .map(|rank| rank.from.map_or(0, |held| held.step))
            .collect();
        let step = steps[0];
        assert!(steps.iter().all(|&other| other == step), "{how}: {steps:?}");
        let possible = progress.committed..=progress.begun;
        assert!(
            possible.contains(&step),
            "{how}: step {step} restored, {progress:?}"
        );
        for (restored, rank) in restored.iter().zip(0..) {
            let Some(folder) = &restored.folder else { continue };
            for path in self.paths(folder, step, rank) {
                let name = path.file_name().unwrap().to_str().unwrap();
                assert_eq!(
                    files.read(&path, 1000).unwrap(),
                    content(step, rank, name),
                    "{how}"
                );
            }
        }
    }

    /// Runs until the disk crashes: restores, then saves some steps. Says what it got to from where it began.
    fn run(self, files: &CrashingFiles, from: Progress, steps: u64) -> Progress {
        let mut progress = from;
        let Ok((mut stores, restored)) = self.restore(files) else {
            return progress;
        };
        let done = restored[0].from.map_or(0, |held| held.step);
        // After a step was restored nothing newer will be.
        progress.begun = progress.begun.max(done);
        for step in done + 1..=done + steps {
            if self.save(files, &mut stores, step, &mut progress).is_err() {
                break;
            }
        }
        progress
    }
}

/// A disk on which the folder of the case has been for long.
fn fresh() -> CrashingFiles {
    let files = CrashingFiles::new();
    files.make_directory(Path::new(CASE)).unwrap();
    files.after_crash(Loss::Nothing)
}

const PROGRAMS: [Program; 4] = [
    Program {
        ranks: 1,
        in_place: false,
    },
    Program {
        ranks: 2,
        in_place: false,
    },
    Program {
        ranks: 1,
        in_place: true,
    },
    Program {
        ranks: 2,
        in_place: true,
    },
];

/// Wherever a machine crashes while a program saves, and whatever the disk loses, all that was committed is there
/// afterwards, nothing torn is restored, and the program goes on.
#[test]
fn every_moment_of_a_save_may_be_the_last() {
    for program in PROGRAMS {
        let undisturbed = fresh();
        let all = program.run(&undisturbed, Progress::default(), 4);
        assert_eq!(all.committed, 4);
        let changes = undisturbed.changes();
        assert!(changes > 50, "{changes}");
        let losses = [
            Loss::Nothing,
            Loss::Everything,
            Loss::Content,
            Loss::HalfOfContent,
            Loss::Zeros,
        ];
        for moment in 0..changes {
            for loss in losses.into_iter().chain((0..8).map(Loss::Random)) {
                let how = format!("{program:?}, change {moment} of {changes}, {loss:?}");
                let files = fresh();
                files.crash_after(moment);
                let progress = program.run(&files, Progress::default(), 4);
                let files = files.after_crash(loss);
                let (mut stores, restored) = program.restore(&files).unwrap();
                program.check(&files, &restored, progress, &how);
                let mut next = Progress::default();
                program.save(&files, &mut stores, 100, &mut next).unwrap();
                let (_, restored) = program.restore(&files).unwrap();
                program.check(&files, &restored, next, &how);
            }
        }
    }
}

/// Crashes follow each other, also while the program restores or clears up after the last one.
#[test]
fn crashes_may_follow_each_other() {
    for seed in 0..1500 {
        let mut random = Pcg64::seed_from_u64(seed);
        let program = PROGRAMS[(seed % 4) as usize];
        let mut files = fresh();
        let mut progress = Progress::default();
        for crash in 0..6 {
            files.crash_after(random.next_u64() % 120);
            progress = program.run(&files, progress, 3);
            files = files.after_crash(Loss::Random(random.next_u64()));
            let how = format!("seed {seed}, crash {crash}, {program:?}");
            // A look with a store of its own, on a copy, so that the next run finds what the crash has left.
            let copy = files.after_crash(Loss::Nothing);
            let (_, restored) = program.restore(&copy).unwrap();
            let found = restored[0].from.map_or(0, |held| held.step);
            program.check(&copy, &restored, progress, &how);
            progress = Progress {
                committed: found,
                begun: progress.begun.max(found),
            };
        }
    }
}

/// The harness finds a store that does not wait for the disk.
#[test]
fn a_store_that_does_not_wait_would_be_found_out() {
    /// As the other, but waits for nothing.
    #[derive(Clone)]
    struct Hasty(CrashingFiles);

    impl Files for Hasty {
        fn make_directory(&self, path: &Path) -> std::io::Result<()> {
            self.0.make_directory(path)
        }
        fn list(&self, path: &Path) -> std::io::Result<Vec<ropewalk_checkpoint::Entry>> {
            self.0.list(path)
        }
        fn kind(&self, path: &Path) -> std::io::Result<ropewalk_checkpoint::EntryKind> {
            self.0.kind(path)
        }
        fn read(&self, path: &Path, most: usize) -> std::io::Result<Vec<u8>> {
            self.0.read(path, most)
        }
        fn write(&self, path: &Path, content: &[u8]) -> std::io::Result<()> {
            self.0.write(path, content)
        }
        fn digest(&self, path: &Path) -> std::io::Result<(u64, [u8; 32])> {
            self.0.digest(path)
        }
        fn sync(&self, _: &Path) -> std::io::Result<()> {
            Ok(())
        }
        fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove_file(&self, path: &Path) -> std::io::Result<()> {
            self.0.remove_file(path)
        }
        fn remove_directory(&self, path: &Path) -> std::io::Result<()> {
            self.0.remove_directory(path)
        }
    }

    let files = fresh();
    let mut store = Store::open_in(Hasty(files.clone()), StoreOptions::new(DIRECTORY)).unwrap();
    let save = store.begin(1).unwrap();
    files.write(&save.folder().join("pressure"), b"1 2 3").unwrap();
    store.commit(save).unwrap();
    let torn = files.after_crash(Loss::Content);
    let mut store = Store::open_in(torn, StoreOptions::new(DIRECTORY)).unwrap();
    assert_eq!(store.holdings().unwrap().held, []);
}

/// A full disk costs one save: what was there stays, the remains go, and the next save finds room.
#[test]
fn a_full_disk_costs_one_save() {
    let program = PROGRAMS[0];
    let files = fresh();
    let mut progress = program.run(&files, Progress::default(), 2);
    let (mut stores, _) = program.restore(&files).unwrap();
    let save = stores[0].begin(3).unwrap();
    let folder = save.folder().to_owned();
    files.write(&folder.join("pressure"), b"torn").unwrap();
    files.fill(true);
    let error = stores[0].commit(save).unwrap_err();
    assert!(error.is_for_lack_of_room(), "{error}");
    assert!(files.kind(&folder).is_err(), "its remains take room");
    files.fill(false);
    program.save(&files, &mut stores, 4, &mut progress).unwrap();
    let (_, restored) = program.restore(&files).unwrap();
    program.check(&files, &restored, progress, "after a full disk");
}

/// A save that could not be brought to the disk leaves nothing, unless others may have seen it: then it
/// stays, and is whole.
#[test]
fn what_others_may_have_seen_is_not_taken_back() {
    let mut left = 0;
    for syncs in 0.. {
        let files = fresh();
        let mut store = Store::open_in(files.clone(), StoreOptions::new(DIRECTORY)).unwrap();
        let save = store.begin(1).unwrap();
        files.write(&save.folder().join("pressure"), b"1 2 3").unwrap();
        let folder = store.generation_path(save.generation());
        files.fail_sync_after(syncs);
        if store.commit(save).is_ok() {
            break;
        }
        let manifest = folder.join("rank-00000.manifest");
        match files.kind(&manifest) {
            Ok(_) => {
                left += 1;
                assert_eq!(store.holdings().unwrap().held.len(), 1);
            }
            Err(_) => assert!(files.kind(&folder).is_err(), "its remains take room"),
        }
    }
    assert_eq!(left, 1, "the last sync comes after the rename");
}

/// A flipped bit, an empty file, a missing file, a manifest cut short: each is seen, and the generation
/// before is taken.
#[test]
fn damage_is_seen() {
    for program in PROGRAMS {
        for kind in 0..4 {
            let files = fresh();
            program.run(&files, Progress::default(), 3);
            let (stores, restored) = program.restore(&files).unwrap();
            let newest = restored[0].from.unwrap();
            let last = restored.last().unwrap();
            let path = &program.paths(last.folder.as_ref().unwrap(), newest.step, program.ranks - 1)[0];
            match kind {
                0 => files.damage(path, |content| content[7] ^= 1),
                1 => files.damage(path, Vec::clear),
                2 => files.remove_file(path).unwrap(),
                _ => {
                    let folder = stores[0].generation_path(newest.generation);
                    let name = format!("rank-{:05}.manifest", program.ranks - 1);
                    files.damage(&folder.join(name), |content| content.truncate(40));
                }
            }
            let (_, restored) = program.restore(&files).unwrap();
            let progress = Progress {
                committed: 2,
                begun: 2,
            };
            program.check(&files, &restored, progress, &format!("{program:?}, {kind}"));
            let aside: usize = restored.iter().map(|rank| rank.quarantined.len()).sum();
            assert_eq!(
                aside, program.ranks as usize,
                "all of the generation is put aside"
            );
        }
    }
}
