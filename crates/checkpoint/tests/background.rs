//! Saves that are written in the background.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs, io,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use ropewalk_checkpoint::{
    AdvisorOptions, Alone, BackgroundStore, Level, RunAdvisor, Save, Store, StoreError, StoreOptions,
};
use tempfile::TempDir;

fn saves(directory: &Path) -> BackgroundStore {
    let mut store = Store::open(StoreOptions::new(directory)).unwrap();
    store.restore(&mut Alone).unwrap();
    BackgroundStore::new(store)
}

/// Writes a file of a save.
fn state(content: &str) -> impl FnOnce(&mut Save) -> io::Result<()> + Send + 'static {
    let content = content.to_owned();
    move |save| fs::write(save.folder().join("state"), content)
}

/// Writes half of a file, tells so, and writes the rest when it may.
fn halting(
    content: &str,
) -> (
    impl FnOnce(&mut Save) -> io::Result<()> + Send + 'static,
    Receiver<()>,
    Sender<()>,
) {
    let (tell, told) = channel();
    let (let_go, may) = channel::<()>();
    let content = content.to_owned();
    let write = move |save: &mut Save| {
        let path = save.folder().join("state");
        fs::write(&path, &content[..content.len() / 2])?;
        tell.send(()).unwrap();
        may.recv().unwrap();
        fs::write(path, content)
    };
    (write, told, let_go)
}

/// The step and the content that a process would restore which starts after a crash at this moment: from a copy of the
/// directory, as the dead process keeps no lock.
fn after_crash(directory: &Path) -> Option<(u64, String)> {
    let copy = TempDir::new().unwrap();
    copy_tree(directory, copy.path());
    let mut store = Store::open(StoreOptions::new(copy.path())).unwrap();
    let restored = store.restore(&mut Alone).unwrap();
    let content = fs::read_to_string(restored.folder?.join("state")).unwrap();
    Some((restored.from?.step, content))
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &place),
            false => drop(fs::copy(entry.path(), place).unwrap()),
        }
    }
}

/// A crash while a save is written leaves the generation before; the save exists when its end is told.
#[test]
fn a_crash_leaves_the_generation_before() {
    let folder = TempDir::new().unwrap();
    let mut saves = saves(folder.path());
    saves.save(1, Level::Full, state("first")).unwrap();
    let ended = saves.wait().unwrap().unwrap();
    assert_eq!((ended.saved.unwrap(), ended.level), (1, Level::Full));
    ended.retired.unwrap();

    let (write, told, let_go) = halting("second");
    assert!(saves.save(2, Level::Full, write).unwrap().is_none());
    told.recv().unwrap();
    assert!(saves.look().unwrap().is_none());
    assert_eq!(after_crash(folder.path()), Some((1, "first".to_owned())));

    let_go.send(()).unwrap();
    assert_eq!(saves.wait().unwrap().unwrap().saved.unwrap(), 2);
    assert!(saves.wait().unwrap().is_none(), "an end is told once");
    assert_eq!(after_crash(folder.path()), Some((2, "second".to_owned())));
}

/// The next save waits for the last one, and returns its end. Dropping waits too. Two generations stay.
#[test]
fn saves_wait_for_each_other() {
    let folder = TempDir::new().unwrap();
    let mut saves = saves(folder.path());
    let (write, told, let_go) = halting("1");
    saves.save(1, Level::Full, write).unwrap();
    told.recv().unwrap();
    let (entered, has_entered) = channel();
    let (returned, has_returned) = channel();
    let thread = thread::spawn(move || {
        entered.send(()).unwrap();
        let before = saves.save(2, Level::Full, state("2")).unwrap();
        returned.send(before.unwrap().saved.unwrap()).unwrap();
        saves.save(3, Level::Full, state("3")).unwrap();
    });
    has_entered.recv().unwrap();
    let early = has_returned.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err(), "the save before was under way");
    let_go.send(()).unwrap();
    assert_eq!(has_returned.recv().unwrap(), 1);
    thread.join().unwrap();
    assert_eq!(after_crash(folder.path()), Some((3, "3".to_owned())));
    let names = fs::read_dir(folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let generations = names.filter(|name| name.starts_with("generation-")).count();
    assert_eq!(generations, 2);
}

/// A save that cannot be written is told, and costs no other save. A panic in what writes is told from then on.
#[test]
fn failures_are_told() {
    let folder = TempDir::new().unwrap();
    let mut saves = saves(folder.path());
    saves.save(1, Level::Full, state("1")).unwrap();
    let full = |_: &mut Save| Err(io::Error::from(io::ErrorKind::StorageFull));
    saves.save(2, Level::Full, full).unwrap();
    let error = saves.wait().unwrap().unwrap().saved.unwrap_err();
    assert!(error.is_for_lack_of_room(), "{error}");
    assert_eq!(after_crash(folder.path()), Some((1, "1".to_owned())));

    saves.save(3, Level::Full, state("3")).unwrap();
    assert_eq!(saves.wait().unwrap().unwrap().saved.unwrap(), 3);
    saves
        .save(4, Level::Full, |_| panic!("wanted by the test"))
        .unwrap();
    assert!(matches!(saves.wait(), Err(StoreError::WriterGone)));
    let again = saves.save(5, Level::Full, state("5"));
    assert!(matches!(again, Err(StoreError::WriterGone)));
    assert_eq!(after_crash(folder.path()), Some((3, "3".to_owned())));
}

/// The advisor takes the time of the copy for the cost of a save, and not the time that the thread takes.
#[test]
fn the_advisor_sees_the_foreground() {
    let folder = TempDir::new().unwrap();
    let mut saves = saves(folder.path());
    let mut advisor = RunAdvisor::start(&AdvisorOptions::default(), None).unwrap();
    let slow = Duration::from_millis(400);
    for step in 1..=3 {
        advisor.step_end();
        if let Some(ended) = saves.wait().unwrap() {
            advisor.save_ended(&ended);
        }
        advisor.save_begin(Level::Full);
        let write = move |save: &mut Save| {
            thread::sleep(slow);
            fs::write(save.folder().join("state"), "content")
        };
        saves.save(step, Level::Full, write).unwrap();
        advisor.save_copied(Level::Full);
    }
    let ended = saves.wait().unwrap().unwrap();
    advisor.save_ended(&ended);
    let costs = advisor.advisor().costs(Level::Full).unwrap();
    let (save, commit) = (costs.save(), costs.commit());
    assert!(save < slow.as_secs_f64() / 2.0, "a save costs {save} s");
    assert!(
        commit > slow.as_secs_f64() * 0.9,
        "a save protects after {commit} s"
    );
    assert!(!advisor.advisor().is_writing());
}
