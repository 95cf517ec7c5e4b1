//! Checkpoints in an object store that is a folder: uploaded beside a program that saves, fetched where
//! nothing is left.

#![cfg(feature = "object-store")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use ropewalk_checkpoint::{
    Alone, Archive, ArchiveError, Depot, Store, StoreOptions, Uploader, open_all, restore_all,
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// More than one piece of an upload.
const LARGE: usize = (8 << 20) + 12_345;

fn store(directory: &Path, rank: u32) -> Store {
    Store::open(StoreOptions {
        rank,
        ranks: 2,
        ..StoreOptions::new(directory)
    })
    .unwrap()
}

fn save(directory: &Path, step: u64) {
    // All open theirs before the first of them begins.
    let stores = [store(directory, 0), store(directory, 1)];
    for (rank, mut store) in (0..).zip(stores) {
        let save = store.begin_generation(step, step).unwrap();
        fs::create_dir_all(save.folder().join("a b/%20")).unwrap();
        fs::write(save.folder().join("a b/%20/ä"), content(step, rank)).unwrap();
        fs::write(save.folder().join("nothing"), "").unwrap();
        store.commit(save).unwrap();
        if rank == 1 {
            store.retire().unwrap();
        }
    }
}

fn content(step: u64, rank: u32) -> Vec<u8> {
    (0..LARGE)
        .map(|at| (at as u64 * (step + 3) + u64::from(rank)) as u8)
        .collect()
}

fn open(bucket: &Path) -> Archive {
    Archive::open(&format!("file://{}", bucket.display()), []).unwrap()
}

fn wait_until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to that");
        sleep(Duration::from_millis(20));
    }
}

/// An uploaded checkpoint comes back to the last bit if the directory is lost; of older ones two are kept,
/// and nothing of the others, not even a folder.
#[test]
fn what_is_lost_comes_back() {
    let folder = TempDir::new().unwrap();
    let [saves, bucket, new] = ["saves", "bucket", "new"].map(|name| folder.path().join(name));
    fs::create_dir(&bucket).unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&said);
    let uploader =
        Uploader::start(open(&bucket), &saves, move |text| told.lock().unwrap().push(text)).unwrap();
    for step in 1..=4 {
        save(&saves, step);
        wait_until(|| open(&bucket).generations().unwrap().contains(&step));
    }
    uploader.finish(PATIENCE);
    assert_eq!(said.lock().unwrap()[..], [""; 0]);
    let kept = open(&bucket).generations().unwrap();
    assert!(kept.contains(&4) && kept.len() <= 3, "{kept:?}");
    let folders = fs::read_dir(&bucket).unwrap().count();
    assert_eq!(folders, kept.len(), "nothing stays of removed generations");

    let mut depot = Depot::open(&new, None).unwrap();
    let held = open(&bucket).fetch(&mut depot).unwrap().unwrap();
    assert_eq!((held.generation, held.step, held.ranks), (4, 4, 2));
    let mut stores = open_all(&new, None).unwrap();
    let restored = restore_all(&mut stores).unwrap();
    for (rank, restored) in restored.iter().enumerate() {
        assert_eq!(restored.from, Some(held));
        let file = restored.folder.as_ref().unwrap().join("a b/%20/ä");
        assert_eq!(fs::read(file).unwrap(), content(4, rank as u32));
    }
    // It goes on from there with the next number.
    assert!(store(&new, 0).restore(&mut Alone).is_ok() && store(&new, 0).next_generation() == 5);
}

/// A file changed in the object store is refused.
#[test]
fn what_was_changed_is_refused() {
    let folder = TempDir::new().unwrap();
    let [saves, bucket, new] = ["saves", "bucket", "new"].map(|name| folder.path().join(name));
    fs::create_dir(&bucket).unwrap();
    save(&saves, 1);
    Uploader::start(open(&bucket), &saves, |_| {})
        .unwrap()
        .finish(PATIENCE);
    let mut changed = 0;
    let mut folders = vec![bucket.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.metadata().unwrap().len() == LARGE as u64 {
                let mut content = fs::read(entry.path()).unwrap();
                content[LARGE / 2] ^= 1;
                fs::write(entry.path(), content).unwrap();
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 2);
    let mut depot = Depot::open(&new, None).unwrap();
    let refused = open(&bucket).fetch(&mut depot);
    assert!(matches!(refused, Err(ArchiveError::Store(_))), "{refused:?}");
    assert!(depot.parts().unwrap().is_empty());
}

/// An object store that cannot be written is told of once, the program goes on, and when it can all is uploaded.
#[test]
fn trouble_is_told_once() {
    let folder = TempDir::new().unwrap();
    let [saves, bucket] = ["saves", "bucket"].map(|name| folder.path().join(name));
    // A file where the folder has to be.
    fs::write(&bucket, "").unwrap();
    let said = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&said);
    save(&saves, 1);
    let uploader =
        Uploader::start(open(&bucket), &saves, move |text| told.lock().unwrap().push(text)).unwrap();
    wait_until(|| !said.lock().unwrap().is_empty());
    save(&saves, 2);
    fs::remove_file(&bucket).unwrap();
    fs::create_dir(&bucket).unwrap();
    wait_until(|| said.lock().unwrap().len() == 2);
    uploader.finish(PATIENCE);
    let said = said.lock().unwrap();
    assert!(said[0].starts_with("checkpoints are not uploaded"), "{said:?}");
    assert_eq!(said[1], "checkpoints are uploaded again");
    assert!(open(&bucket).generations().unwrap().contains(&2));
}

/// A text that is no address, or the address of a cloud that this was not built for, is refused.
#[test]
fn addresses_are_checked() {
    assert!(matches!(
        Archive::open("no address", []),
        Err(ArchiveError::Url { .. })
    ));
    assert!(Archive::open("gopher://x/y", []).is_err());
}
