//! Checkpoints that are also results of the program.

use std::{fs, path::Path};

use ropewalk_checkpoint::{Alone, Store, StoreOptions};

fn exists(case: &Path, step: u64) -> bool {
    case.join(step.to_string()).join("p").exists()
}

/// When a generation is old its files go, but not those that the program wants to keep; to restore, both are as good.
#[test]
fn results_stay_when_their_generation_goes() {
    let case = tempfile::tempdir().unwrap();
    let case = case.path();
    let options = StoreOptions {
        in_place: Some(case.to_owned()),
        ..StoreOptions::new(case.join("checkpoints"))
    };
    let mut store = Store::open(options.clone()).unwrap();
    for step in 1..=6 {
        let folder = case.join(step.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("p"), format!("pressure {step}")).unwrap();
        let mut save = store.begin(step).unwrap();
        save.add(&folder).unwrap();
        if step % 3 == 0 {
            save.keep();
        }
        store.commit(save).unwrap();
        store.retire().unwrap();
    }
    let left: Vec<u64> = (1..=6).filter(|&step| exists(case, step)).collect();
    assert_eq!(left, [3, 5, 6]);

    fs::write(case.join("6/p"), "pressure 7").unwrap();
    let mut store = Store::open(options.clone()).unwrap();
    assert_eq!(store.restore(&mut Alone).unwrap().from.unwrap().step, 5);
    assert!(!exists(case, 6), "what was changed is put aside");
    assert!(exists(case, 3));
}
