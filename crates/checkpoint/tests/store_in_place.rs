//! Files that stay where the program writes them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use ropewalk_checkpoint::{Alone, Store, StoreOptions};
use tempfile::TempDir;

/// A generation that is torn takes nothing with it that an older one needs too.
#[test]
fn a_file_of_two_generations_stays_for_the_other() {
    let folder = TempDir::new().unwrap();
    let case = folder.path().join("case");
    fs::create_dir(&case).unwrap();
    let mut store = open(folder.path());
    fs::write(case.join("mesh"), "the same for ever").unwrap();
    for step in 1..=2 {
        let field = case.join(format!("field-{step}"));
        fs::write(&field, format!("of step {step}")).unwrap();
        let mut save = store.begin(step).unwrap();
        save.add(&field).unwrap();
        save.add(&case.join("mesh")).unwrap();
        store.commit(save).unwrap();
    }
    fs::write(case.join("field-2"), "torn").unwrap();
    let restored = open(folder.path()).restore(&mut Alone).unwrap();
    assert_eq!(restored.from.unwrap().step, 1);
    assert_eq!(restored.quarantined.len(), 1);
    assert_eq!(
        fs::read_to_string(case.join("mesh")).unwrap(),
        "the same for ever"
    );
    assert!(!case.join("field-2").exists(), "what is torn is put aside");
    let again = open(folder.path()).restore(&mut Alone).unwrap();
    assert_eq!(again.from.unwrap().step, 1);
}

fn open(folder: &Path) -> Store {
    Store::open(StoreOptions {
        in_place: Some(folder.join("case")),
        ..StoreOptions::new(folder.join("checkpoints"))
    })
    .unwrap()
}

/// The removal of an old generation's last file in a folder leaves the folder if a newer generation has it empty.
#[test]
fn an_empty_directory_of_a_newer_generation_stays() {
    let folder = TempDir::new().unwrap();
    let case = folder.path().join("case");
    let probes = case.join("probes");
    fs::create_dir_all(&probes).unwrap();
    let mut store = open(folder.path());
    for step in 1..=3 {
        // Only the first has something in it.
        let values = probes.join("values");
        if step == 1 {
            fs::write(&values, "of step 1").unwrap();
        }
        let mut save = store.begin(step).unwrap();
        save.add(&probes).unwrap();
        store.commit(save).unwrap();
        let hidden = case.join("hidden");
        if step == 1 {
            fs::rename(&values, &hidden).unwrap();
        } else if step == 3 {
            fs::rename(&hidden, &values).unwrap();
        }
    }
    assert_eq!(store.retire().unwrap(), [1]);
    assert!(probes.is_dir() && !probes.join("values").exists());
    let restored = open(folder.path()).restore(&mut Alone).unwrap();
    assert_eq!(restored.from.unwrap().step, 3);
}
