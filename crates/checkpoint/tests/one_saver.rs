//! Processes that save as the same rank.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use ropewalk_checkpoint::{Alone, State, Store, StoreError, StoreOptions, restore_all, survey};
use tempfile::TempDir;

/// The folder in which the other process saves.
const FOLDER: &str = "ROPEWALK_TEST_FOLDER";

const SAVED: &str = "the other process has saved";

fn open(directory: &Path, rank: u32) -> Store {
    Store::open(StoreOptions {
        rank,
        ranks: 2,
        ..StoreOptions::new(directory)
    })
    .unwrap()
}

fn save(store: &mut Store, content: &str) -> Result<u64, StoreError> {
    let save = store.begin(1)?;
    fs::write(save.folder().join("state"), content).unwrap();
    store.commit(save)
}

/// The other process: saves, and holds its store until nobody listens.
#[test]
#[ignore = "the test of this file starts it"]
fn the_other_process() {
    let folder = env::var_os(FOLDER).unwrap();
    let mut store = open(Path::new(&folder), 0);
    save(&mut store, "of the other process").unwrap();
    println!("\n{SAVED}");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn other_process(directory: &Path) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "the_other_process"])
        .env(FOLDER, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == SAVED), "it did not save");
    child
}

/// Who saves keeps others from saving as the same rank, but not from anything else, until it is gone, if by SIGKILL.
#[test]
fn one_process_saves_as_a_rank() {
    let folder = TempDir::new().unwrap();
    let mut child = other_process(folder.path());
    let mut store = open(folder.path(), 0);
    let error = save(&mut store, "of this one").unwrap_err();
    assert!(
        matches!(error, StoreError::SavedByAnother { rank: 0, .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("rank-00000.lock") && text.contains("its own number"),
        "{text}"
    );
    assert_eq!(store.holdings().unwrap().held.len(), 1);
    let content = fs::read_to_string(store.data_path(1).join("state")).unwrap();
    assert_eq!(content, "of the other process");
    save(&mut open(folder.path(), 1), "of another rank").unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(store.holdings().unwrap().held.len(), 1);
    let number = save(&mut store, "of this one").unwrap();
    let quarantine = store.quarantine(number, "to see that the lock is none of it");
    assert!(quarantine.unwrap().is_some() && folder.path().join("rank-00000.lock").exists());
}

/// Everything below a folder, with its length.
fn listed(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(listed(&path));
        }
        found.push((path.display().to_string(), entry.metadata().unwrap().len()));
    }
    found.sort();
    found
}

/// Restoring beside a process that saves is refused: what that has on its way would be taken for torn, and the start be
/// counted. A look changes nothing, and sees that the save on its way is not whole.
#[test]
fn nobody_restores_beside_a_saver() {
    let folder = TempDir::new().unwrap();
    let mut other = open(folder.path(), 1);
    let mut child = other_process(folder.path());
    // As the other one's next save, half of it.
    let under_way = folder.path().join("generation-0000000002/rank-00000");
    fs::create_dir_all(&under_way).unwrap();
    fs::write(under_way.join("state"), "half").unwrap();
    let before = listed(folder.path());
    let options = || StoreOptions {
        decided: None,
        ..StoreOptions::new(folder.path())
    };
    let refused = Store::open(options()).unwrap().restore(&mut Alone).unwrap_err();
    assert!(
        matches!(refused, StoreError::SavedByAnother { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("ropewalk checkpoints"), "{refused}");
    let refused = restore_all(&mut [Store::open(options()).unwrap()]).unwrap_err();
    assert!(
        matches!(refused, StoreError::SavedByAnother { .. }),
        "{refused:?}"
    );
    let found = survey(folder.path()).unwrap();
    assert_eq!(listed(folder.path()), before);
    let [whole, half] = &found.generations[..] else {
        panic!("{found:?}");
    };
    let State::NotWhole(reasons) = &whole.state else {
        panic!("{found:?}");
    };
    assert_eq!(reasons[..], ["rank 1 has saved nothing of it"]);
    assert!(matches!(&half.state, State::NotWhole(why) if why[0].contains("is being saved")));

    child.kill().unwrap();
    child.wait().unwrap();
    let save = other.begin(1).unwrap();
    fs::write(save.folder().join("state"), "of the other rank").unwrap();
    other.commit(save).unwrap();
    let found = survey(folder.path()).unwrap();
    assert_eq!(found.generations[0].state, State::Whole);
    assert_eq!(found.newest_whole().map(|newest| newest.step), Some(Some(1)));
    let mut store = open(folder.path(), 0);
    assert!(restore_all(&mut [store, other]).unwrap()[0].from.is_some());
    store = open(folder.path(), 0);
    let mut again = other_process(folder.path());
    assert!(matches!(
        store.restore(&mut Alone),
        Err(StoreError::SavedByAnother { .. })
    ));
    again.kill().unwrap();
    again.wait().unwrap();
}

/// A process may drop its store and open it again, while children that it has started live on.
#[test]
fn a_store_may_be_opened_again() {
    let folder = TempDir::new().unwrap();
    let options = || StoreOptions::new(folder.path());
    let mut store = Store::open(options()).unwrap();
    save(&mut store, "first").unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    drop(store);
    let mut again = Store::open(options()).unwrap();
    assert_eq!(again.restore(&mut Alone).unwrap().from.unwrap().generation, 1);
    assert_eq!(save(&mut again, "second").unwrap(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
}
