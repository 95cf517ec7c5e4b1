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
