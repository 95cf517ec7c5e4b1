//! Stores that ranks of another number have saved to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use ropewalk_checkpoint::{
    Alone, Decided, Store, StoreError, StoreOptions, newest_whole, open_all, restore_all,
};
use tempfile::TempDir;

fn open(directory: &Path, rank: u32, ranks: u32) -> Store {
    Store::open(StoreOptions {
        rank,
        ranks,
        ..StoreOptions::new(directory)
    })
    .unwrap()
}

fn save(store: &mut Store, step: u64) -> u64 {
    let save = store.begin(step).unwrap();
    fs::write(save.folder().join("state"), step.to_string()).unwrap();
    store.commit(save).unwrap()
}

/// Three ranks have saved two generations.
fn saved_by_three() -> TempDir {
    let folder = TempDir::new().unwrap();
    let stores: Vec<Store> = (0..3).map(|rank| open(folder.path(), rank, 3)).collect();
    for mut store in stores {
        save(&mut store, 1);
        save(&mut store, 2);
    }
    folder
}

/// Nobody of another number starts from its beginning and moves what the others have saved.
#[test]
fn what_another_number_saved_stays() {
    let folder = saved_by_three();
    let decided = Some(Decided {
        generation: None,
        next: 5,
    });
    for decided in [None, decided] {
        let options = StoreOptions {
            decided,
            ..StoreOptions::new(folder.path())
        };
        let error = Store::open(options).unwrap().restore(&mut Alone).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::OtherRanks {
                    found: 3,
                    ranks: 1,
                    ..
                }
            ),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("of 3 ranks, and this job has 1"), "{text}");
    }
    let mut two: Vec<Store> = (0..2).map(|rank| open(folder.path(), rank, 2)).collect();
    assert!(matches!(
        restore_all(&mut two),
        Err(StoreError::OtherRanks { .. })
    ));
    assert!(!folder.path().join("quarantine").exists());
    let mut three = open_all(folder.path(), None).unwrap();
    assert_eq!(newest_whole(&mut three).unwrap().unwrap().step, 2);
    let all = restore_all(&mut three).unwrap();
    assert!(all.iter().all(|rank| rank.from.unwrap().step == 2));
}

/// Generations of another number that are newer than what is restored are not moved either.
#[test]
fn what_another_number_saved_in_between_stays() {
    let folder = TempDir::new().unwrap();
    let mut two: Vec<Store> = (0..2).map(|rank| open(folder.path(), rank, 2)).collect();
    two.iter_mut().for_each(|store| assert_eq!(save(store, 1), 1));
    assert_eq!(save(&mut open(folder.path(), 0, 1), 5), 2);
    // Rank 1 does not come to its part of the third.
    let mut first = open(folder.path(), 0, 2);
    assert_eq!(save(&mut first, 2), 3);
    let all = restore_all(&mut two).unwrap();
    assert_eq!(all[0].from.unwrap().generation, 1);
    let moved: Vec<_> = all.iter().flat_map(|rank| &rank.quarantined).collect();
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert!(first.data_path(2).exists() && !first.data_path(3).exists());
}

/// Generations in which other ranks have a part do not count among those that are kept.
#[test]
fn only_own_generations_are_counted() {
    let folder = saved_by_three();
    let mut alone = open(folder.path(), 0, 1);
    save(&mut alone, 3);
    assert_eq!(alone.retire().unwrap(), [0; 0]);
    assert!(alone.data_path(1).exists());
}
