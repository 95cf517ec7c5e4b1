//! The store on real disks: full ones, read-only ones, ones that vanish; ranks that share a directory; copies
//! elsewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Barrier,
    thread,
    time::Duration,
};

use ropewalk_checkpoint::{
    Alone, Coordination, CoordinationError, Decided, JournalFile, Level, Record, SharedDirectory, Store,
    StoreError, StoreOptions, open_all, restore_all,
};
use tempfile::TempDir;

fn save(store: &mut Store, step: u64, content: &[u8]) -> Result<u64, StoreError> {
    let save = store.begin(step)?;
    fs::create_dir_all(save.folder().join("a/b")).unwrap();
    fs::create_dir_all(save.folder().join("empty")).unwrap();
    fs::write(save.folder().join("state"), content).unwrap();
    fs::write(save.folder().join("a/b/c"), step.to_string()).unwrap();
    store.commit(save)
}

fn open(directory: &Path) -> Store {
    Store::open(StoreOptions::new(directory)).unwrap()
}

/// The step of what is restored, and the content of its file.
fn restored(directory: &Path) -> Option<(u64, Vec<u8>)> {
    let found = open(directory).restore(&mut Alone).unwrap();
    let content = fs::read(found.folder?.join("state")).unwrap();
    Some((found.from?.step, content))
}

/// A file system of its own of one megabyte, which goes with the guard.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder.path())
            .status()
            .unwrap();
        assert!(
            mounted.success(),
            "a small disk needs the right to mount: run the tests as root"
        );
        Self(folder)
    }

    fn remount(&self, option: &str) {
        let option = format!("remount,{option}");
        let done = Command::new("mount")
            .args(["-o", &option])
            .arg(self.0.path())
            .status();
        assert!(done.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A save that finds the disk full fails in one line that names the path; the older ones are whole, its
/// remains are gone, and the next save that fits succeeds.
#[test]
fn a_full_disk_leaves_the_old_generations() {
    let disk = SmallDisk::new();
    let directory = disk.0.path().join("saves");
    let mut store = open(&directory);
    save(&mut store, 1, &[1; 100_000]).unwrap();
    save(&mut store, 2, &[2; 100_000]).unwrap();
    let too_much = store.begin(3).unwrap();
    let folder = too_much.folder().to_owned();
    // As much as fits, as a program does that does not look whether all was written.
    let full = fs::write(folder.join("state"), vec![3; 2_000_000]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let error = store.commit(too_much).unwrap_err();
    assert!(error.is_for_lack_of_room(), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("cannot write") && text.contains("as they were") && !text.contains('\n'),
        "{text}"
    );
    assert!(!folder.exists());
    assert_eq!(restored(&directory), Some((2, vec![2; 100_000])));
    save(&mut store, 4, &[4; 100_000]).unwrap();
    assert_eq!(store.retire().unwrap(), [1]);
    assert_eq!(restored(&directory), Some((4, vec![4; 100_000])));
}

/// A journal has room for what it will have to say when others have filled its disk.
#[test]
fn a_full_disk_has_room_for_the_journal() {
    let disk = SmallDisk::new();
    let path = disk.0.path().join("journal");
    let (mut journal, _) = JournalFile::open(&path).unwrap();
    let full = fs::write(disk.0.path().join("others"), vec![3; 2_000_000]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    journal.add(Record::Start { start: 1 }).unwrap();
    // More than it has before it is made short, for which there is no room either.
    let failed = Record::NotSaved {
        level: Level::Full,
        seconds: 0.123_456_789,
    };
    for _ in 0..12_000 {
        journal.add(failed).unwrap();
    }
    drop(journal);
    let found = JournalFile::look(&path).unwrap().unwrap();
    assert_eq!(found.totals().failed_saves, 12_000);
}

/// A disk that can only be read refuses saves, and restores all the same.
#[test]
fn a_disk_that_can_only_be_read_is_restored_from() {
    let disk = SmallDisk::new();
    let directory = disk.0.path().join("saves");
    let mut store = open(&directory);
    save(&mut store, 1, b"one").unwrap();
    save(&mut store, 2, b"two").unwrap();
    fs::write(store.data_path(2).join("state"), b"owt").unwrap();
    // Who has saved has a file open for writing.
    drop(store);
    disk.remount("ro");
    let mut again = open(&directory);
    assert!(matches!(again.begin(3), Err(StoreError::Files { .. })));
    let found = again.restore(&mut Alone).unwrap();
    assert_eq!(found.from.map(|held| held.step), Some(1));
    assert!(found.quarantined.is_empty() && !found.stuck.is_empty());
    disk.remount("rw");
}

/// A directory that vanishes fails the save that needs it; when it is there again, saves go on.
#[test]
fn a_directory_may_vanish() {
    let folder = TempDir::new().unwrap();
    let [directory, elsewhere] = ["saves", "elsewhere"].map(|name| folder.path().join(name));
    let mut store = open(&directory);
    save(&mut store, 1, b"one").unwrap();
    let begun = store.begin(2).unwrap();
    fs::rename(&directory, &elsewhere).unwrap();
    assert!(store.commit(begun).is_err());
    fs::rename(&elsewhere, &directory).unwrap();
    save(&mut store, 3, b"three").unwrap();
    assert_eq!(restored(&directory), Some((3, b"three".to_vec())));
}

/// Two generations are kept however often the program is started again, and a number is never used twice.
#[test]
fn retention_counts_across_restarts() {
    let folder = TempDir::new().unwrap();
    for start in 0..5_u64 {
        let mut store = open(folder.path());
        store.restore(&mut Alone).unwrap();
        let number = save(&mut store, start, b"state").unwrap();
        assert_eq!(number, start + 1);
        store.retire().unwrap();
    }
    let names = fs::read_dir(folder.path()).unwrap();
    let generations = names.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("generation-")
    });
    assert_eq!(generations.count(), 2);
}

/// Starts from a generation that lead nowhere are counted, once for each start, and then the one before it is taken.
#[test]
fn a_generation_that_leads_nowhere_is_given_up() {
    let folder = TempDir::new().unwrap();
    let mut store = open(folder.path());
    save(&mut store, 1, b"good").unwrap();
    save(&mut store, 2, b"poison").unwrap();
    let begin = |start| {
        let options = StoreOptions {
            start: Some(start),
            restarts_max: 3,
            ..StoreOptions::new(folder.path())
        };
        let found = Store::open(options).unwrap().restore(&mut Alone).unwrap();
        found.from.unwrap().step
    };
    for start in 0..3 {
        // The supervisor and the program both ask.
        assert_eq!([begin(start), begin(start)], [2, 2]);
    }
    assert_eq!(begin(3), 1);
    assert!(folder.path().join("quarantine").exists());
}

/// However often the newest generation is torn, two stay in quarantine, the last ones; numbers rise all the same.
#[test]
fn quarantine_is_bounded() {
    let folder = TempDir::new().unwrap();
    let names = || {
        let listed = fs::read_dir(folder.path().join("quarantine")).unwrap();
        let mut names: Vec<_> = listed
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let mut store = open(folder.path());
    save(&mut store, 1, b"good").unwrap();
    for number in 2..9 {
        save(&mut store, 2, b"bad").unwrap();
        fs::write(store.data_path(number).join("state"), b"dab").unwrap();
        let found = store.restore(&mut Alone).unwrap();
        assert_eq!(found.from.map(|held| held.generation), Some(1));
        assert_eq!(found.quarantined.len(), 1);
    }
    let name = |number: u64| format!("generation-{number:010}.rank-00000");
    assert_eq!(names(), [name(7), name(8)]);
    // Many at once, and the same one again and again.
    for number in 9..14 {
        save(&mut store, 2, b"bad").unwrap();
        fs::write(store.data_path(number).join("state"), b"dab").unwrap();
    }
    assert_eq!(store.restore(&mut Alone).unwrap().quarantined.len(), 2);
    assert_eq!(names(), [name(12), name(13)]);
    for _ in 0..4 {
        fs::create_dir_all(store.data_path(13)).unwrap();
        store.quarantine(13, "it is torn").unwrap();
    }
    assert_eq!(names(), [name(13) + ".4", name(13) + ".5"]);
    assert_eq!(
        Store::open(StoreOptions::new(folder.path()))
            .unwrap()
            .next_generation(),
        14
    );
}

/// Ranks with a directory in common agree on what to restore; one that is a generation behind decides for all.
#[test]
fn ranks_agree_through_a_directory() {
    const RANKS: u32 = 4;
    let folder = TempDir::new().unwrap();
    let directory = folder.path();
    let options = move |rank| StoreOptions {
        rank,
        ranks: RANKS,
        ..StoreOptions::new(directory)
    };
    let barrier = &Barrier::new(RANKS as usize);
    let of_all = |start: &str, work: &(dyn Fn(&mut Store, &mut SharedDirectory) -> u64 + Sync)| -> Vec<u64> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..RANKS)
                .map(|rank| {
                    scope.spawn(move || {
                        let mut store = Store::open(options(rank)).unwrap();
                        let patience = Duration::from_secs(60);
                        let mut others = SharedDirectory::new(directory, start, rank, RANKS, patience);
                        barrier.wait();
                        work(&mut store, &mut others)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    of_all("one", &|store, others| {
        store.restore(others).unwrap();
        save(store, 10, b"ten").unwrap();
        save(store, 20, b"twenty").unwrap();
        // Rank 2 does not come to its last save.
        if store.options().rank != 2 {
            save(store, 30, b"thirty").unwrap();
        }
        0
    });
    let steps = of_all("two", &|store, others| {
        let found = store.restore(others).unwrap();
        assert_eq!(store.next_generation(), 4, "no number is used twice");
        found.from.unwrap().step
    });
    assert_eq!(steps, [20; RANKS as usize]);
    // The same by one process that sees all.
    let mut stores = open_all(folder.path(), None).unwrap();
    assert_eq!(stores.len(), RANKS as usize);
    let all = restore_all(&mut stores).unwrap();
    assert!(all.iter().all(|rank| rank.from.unwrap().step == 20));
}

/// A rank that does not come is named after the patience is over.
#[test]
fn a_rank_that_does_not_come_is_named() {
    let folder = TempDir::new().unwrap();
    let mut alone = SharedDirectory::new(folder.path(), "one", 0, 2, Duration::from_millis(50));
    match alone.share(b"I have nothing") {
        Err(CoordinationError::Late { rank: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Programs that find an empty directory gone may fail as they do for a file: such a generation is not whole.
#[test]
fn a_lost_empty_directory_is_seen() {
    let folder = TempDir::new().unwrap();
    let mut store = open(folder.path());
    save(&mut store, 1, b"one").unwrap();
    save(&mut store, 2, b"two").unwrap();
    let empty = store.data_path(2).join("empty");
    fs::remove_dir(&empty).unwrap();
    fs::write(&empty, "a file in its place").unwrap();
    assert_eq!(store.whole_manifest(2), None);
    fs::remove_file(&empty).unwrap();
    assert_eq!(restored(folder.path()), Some((1, b"one".to_vec())));
}

/// Links are no content of a checkpoint, and paths in place stay below their folder.
#[test]
fn only_files_below_the_folder_are_saved() {
    let folder = TempDir::new().unwrap();
    let mut store = open(&folder.path().join("saves"));
    let begun = store.begin(1).unwrap();
    symlink("/etc/passwd", begun.folder().join("link")).unwrap();
    assert!(matches!(store.commit(begun), Err(StoreError::NotAFile(_))));
    let options = StoreOptions {
        in_place: Some(folder.path().to_owned()),
        ..StoreOptions::new(folder.path().join("in-place"))
    };
    let mut begun = Store::open(options).unwrap().begin(1).unwrap();
    for outside in ["/etc/passwd", "../up", "a/../../b"] {
        assert!(
            matches!(
                begun.add(&PathBuf::from(outside)),
                Err(StoreError::Outside { .. })
            ),
            "{outside}"
        );
    }
}

/// A generation decided on for all ranks is taken and nobody is asked; one that is not there is an error. Old
/// generations stay until somebody else removes them.
#[test]
fn what_was_decided_is_restored() {
    let folder = TempDir::new().unwrap();
    let decided = |generation| {
        Store::open(StoreOptions {
            ranks: 2,
            decided: Some(Decided {
                generation,
                next: 1005,
            }),
            ..StoreOptions::new(folder.path())
        })
        .unwrap()
    };
    let mut store = decided(None);
    for step in 1..=4 {
        save(&mut store, step, b"content").unwrap();
    }
    assert_eq!(store.retire().unwrap(), [0; 0]);
    let mut store = decided(Some(3));
    let restored = store.restore(&mut Nobody).unwrap();
    assert_eq!(restored.from.unwrap().generation, 3);
    assert_eq!(restored.quarantined.len(), 1, "the newer one is put aside");
    assert_eq!(store.next_generation(), 1005);
    let missing = decided(Some(9)).restore(&mut Nobody);
    assert!(matches!(missing, Err(StoreError::Missing(9))), "{missing:?}");
}

/// Ranks that cannot be asked.
struct Nobody;

impl Coordination for Nobody {
    fn share(&mut self, _own: &[u8]) -> Result<Vec<Vec<u8>>, CoordinationError> {
        panic!("nobody is there to be asked");
    }
}
