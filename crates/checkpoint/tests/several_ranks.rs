//! The advisor of a job of several ranks, of which it is on one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, thread::sleep, time::Duration};

use ropewalk_checkpoint::{AdvisorOptions, History, JournalFile, Level, RunAdvisor, Store, StoreOptions};
use tempfile::TempDir;

fn save(store: &mut Store, step: u64) {
    let save = store.begin(step).unwrap();
    fs::write(save.folder().join("state"), "x").unwrap();
    store.commit(save).unwrap();
}

fn history(folder: &Path) -> History {
    JournalFile::look(&folder.join("journal")).unwrap().unwrap()
}

/// The slowest rank's time is the save's, and no part of the step in which the others have waited for it.
#[test]
fn the_slowest_rank_counts() {
    let folder = TempDir::new().unwrap();
    let store = |rank| {
        let options = StoreOptions {
            rank,
            ranks: 2,
            ..StoreOptions::new(folder.path())
        };
        Store::open(options).unwrap()
    };
    let [mut own, mut slow] = [store(0), store(1)];
    let journal = folder.path().join("journal");
    let mut advisor = RunAdvisor::start(&AdvisorOptions::default(), Some(journal)).unwrap();
    let level = Level::Full;
    for step in 0..2 {
        advisor.save_begin(level);
        save(&mut own, step);
        advisor.save_end(level);
        sleep(Duration::from_millis(500));
        save(&mut slow, step);
        // The step that both have computed.
        sleep(Duration::from_millis(60));
        advisor.step_end();
    }
    let found = history(folder.path());
    assert!(found.saves(level).iter().all(|&save| save >= 0.45), "{found:?}");
    assert!(advisor.advisor().costs(level).unwrap().save() >= 0.45);
    let step = found.steps()[0];
    assert!((0.06..0.5).contains(&step), "{found:?}");
    assert_eq!(found.totals().saves, 2);
    assert!(found.totals().save_seconds >= 0.9, "{found:?}");
}

/// A program that fails leaves in the journal how many steps it has done, however short, and a save that failed.
#[test]
fn a_dropped_advisor_leaves_its_steps() {
    let folder = TempDir::new().unwrap();
    let journal = folder.path().join("journal");
    let mut advisor = RunAdvisor::start(&AdvisorOptions::default(), Some(journal)).unwrap();
    for _ in 0..1000 {
        advisor.step_end();
    }
    advisor.save_begin(Level::Full);
    advisor.save_failed(Level::Full);
    for _ in 0..234 {
        advisor.step_end();
    }
    drop(advisor);
    let found = history(folder.path());
    assert_eq!(found.open_steps().map(|(_, steps)| steps), Some(1234));
    assert_eq!((found.totals().failed_saves, found.totals().saves), (1, 0));
    assert!(found.failing().is_some_and(|failing| failing.count == 1));
}
