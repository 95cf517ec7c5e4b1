//! Runs whose state is saved by name.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, thread, time::Duration};

use ropewalk_checkpoint::{
    History, JournalFile, Named, RunError, RunOptions, SavedRun, SavedValue, StoreOptions, Totals,
};
use tempfile::TempDir;

const STEPS: u64 = 40;

fn options(folder: &Path, rank: u32, ranks: u32, start: &str) -> RunOptions {
    let job = RunOptions::of_job(Some(folder)).unwrap().with_mtbf(0.05);
    RunOptions {
        store: StoreOptions {
            rank,
            ranks,
            ..StoreOptions::new(folder)
        },
        start: Some(start.into()),
        patience: Duration::from_secs(20),
        ..job
    }
}

fn open(folder: &Path) -> SavedRun {
    SavedRun::open(options(folder, 0, 1, "alone")).unwrap()
}

/// The state of a computation in which each step depends on all before.
#[derive(Clone, Debug, PartialEq)]
struct State {
    field: Vec<f64>,
    time: f64,
    note: SavedValue,
}

impl State {
    fn new() -> Self {
        Self {
            field: vec![1.0; 5000],
            time: 0.0,
            note: SavedValue::default(),
        }
    }

    fn named(&mut self) -> [Named<'_>; 3] {
        // A value needs a type from the beginning.
        self.note.kind = "str".into();
        [
            Named::array_of_shape("field", &mut self.field, &[50, 100]),
            Named::number("time", &mut self.time),
            Named::value("note", &mut self.note),
        ]
    }

    fn compute(&mut self, step: u64) {
        for (index, value) in self.field.iter_mut().enumerate() {
            *value = value.mul_add(1.01, (step * index as u64) as f64);
        }
        self.time += 0.1;
        self.note.bytes = format!("after {step}").into_bytes();
    }

    fn after(steps: u64) -> Self {
        let mut state = Self::new();
        state.named();
        (0..steps).for_each(|step| state.compute(step));
        state
    }
}

fn history(folder: &Path) -> Totals {
    let history: History = JournalFile::look(&folder.join("journal")).unwrap().unwrap();
    *history.totals()
}

/// Runs that end in the middle of a step go on with the same bits, and one that is done has its state.
#[test]
fn a_run_continues_where_it_was() {
    let folder = TempDir::new().unwrap();
    let mut begun_at = Vec::new();
    for stop in [10, 25, STEPS, STEPS] {
        let mut state = State::new();
        let mut run = open(folder.path());
        let begun = run.restore(&mut state.named()).unwrap();
        assert_eq!(state, State::after(begun));
        begun_at.push(begun);
        while let Some(step) = run.step(STEPS, &mut state.named()).unwrap() {
            state.compute(step);
            thread::sleep(Duration::from_millis(2));
            if step == stop {
                break;
            }
        }
        if stop == STEPS {
            assert_eq!(run.steps_done(), STEPS);
            assert_eq!(state, State::after(STEPS));
            run.close(true).unwrap();
        }
    }
    assert!(
        begun_at[0] == 0 && begun_at[1] > 0 && begun_at[2] > begun_at[1],
        "{begun_at:?}"
    );
    assert_eq!(begun_at[3], STEPS);
    assert_eq!(history(folder.path()).failures, 2);
}

/// A state of another shape is refused, as often as somebody tries, without a change of memory or saves.
#[test]
fn another_shape_is_refused() {
    let folder = TempDir::new().unwrap();
    let mut state = State::new();
    let mut run = open(folder.path());
    while let Some(step) = run.step(3, &mut state.named()).unwrap() {
        state.compute(step);
    }
    run.close(true).unwrap();
    for _ in 0..6 {
        let mut other = State::new();
        let mut run = open(folder.path());
        let mut named = other.named();
        named[0] = Named::array_of_shape("field", &mut state.field, &[100, 50]);
        let error = run.restore(&mut named).unwrap_err();
        let expected = "cannot restore: field was saved as float64 of 8 bytes, shape 50x100, and this program has \
             float64 of 8 bytes, shape 100x50. Nothing was changed; start the \
             program that saved it, or name another directory";
        assert_eq!(error.to_string(), expected);
        assert!(matches!(run.step(3, &mut named), Err(RunError::Refused)));
        assert_eq!(other.time.to_bits(), 0);
    }
    assert_eq!(state, State::after(3));
    let mut found = State::new();
    assert_eq!(open(folder.path()).restore(&mut found.named()).unwrap(), 3);
    assert_eq!(found, State::after(3));
    assert!(!folder.path().join("quarantine").exists());
    assert_eq!(history(folder.path()).failures, 0);
}

/// A save that fails is told and does not end the run; the error of the last one is told at the end.
#[test]
fn failed_saves_are_told() {
    let folder = TempDir::new().unwrap();
    let mut state = State::new();
    let mut run = open(folder.path());
    assert_eq!(run.restore(&mut state.named()).unwrap(), 0);
    // In the way of the folders of all saves.
    for generation in 1..=STEPS {
        fs::write(folder.path().join(format!("generation-{generation:010}")), "").unwrap();
    }
    let mut told = 0;
    let error = loop {
        match run.step(STEPS, &mut state.named()) {
            Ok(Some(step)) => {
                state.compute(step);
                thread::sleep(Duration::from_millis(10));
            }
            Ok(None) => panic!("the last save was made"),
            Err(error) => break error,
        }
        run.wait().unwrap();
        told += u32::from(run.take_failure().is_some());
    };
    assert!(told > 0);
    assert!(error.to_string().contains("generation-00000000"), "{error}");
    assert_eq!(state, State::after(STEPS));
    run.close(true).unwrap();
}

/// A file that was not saved by name, and one that is cut, are errors.
#[test]
fn other_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let mut store = ropewalk_checkpoint::Store::open(StoreOptions::new(folder.path())).unwrap();
    let save = store.begin(1).unwrap();
    fs::write(save.folder().join("other"), "x").unwrap();
    store.commit(save).unwrap();
    let save = store.begin(2).unwrap();
    fs::write(save.folder().join("state"), "ropewalk state 1 00000026\n").unwrap();
    store.commit(save).unwrap();
    drop(store);
    let restored = |folder: &Path| open(folder).restore(&mut State::new().named()).unwrap_err();
    assert!(matches!(restored(folder.path()), RunError::Header(_)));
    fs::remove_dir_all(folder.path().join("generation-0000000002")).unwrap();
    assert!(matches!(restored(folder.path()), RunError::NoNamedState(_)));
}

/// Runs all ranks of a job, each in a thread.
fn job<T: Send + 'static>(ranks: u32, work: impl Fn(u32) -> T + Clone + Send + 'static) -> Vec<T> {
    let threads: Vec<_> = (0..ranks)
        .map(|rank| {
            let work = work.clone();
            thread::spawn(move || work(rank))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// All ranks save and restore the same steps, as rank 0 says, though some are slower.
#[test]
fn ranks_agree() {
    const RANKS: u32 = 3;
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_owned();
    let begun = job(RANKS, move |rank| {
        let mut begun = Vec::new();
        for (start, stop) in [("a", 13), ("b", 29), ("c", STEPS)] {
            let mut state = State::new();
            let mut run = SavedRun::open(options(&path, rank, RANKS, start)).unwrap();
            begun.push(run.restore(&mut state.named()).unwrap());
            while let Some(step) = run.step(STEPS, &mut state.named()).unwrap() {
                state.compute(step + u64::from(rank));
                thread::sleep(Duration::from_millis(u64::from(RANKS - rank)));
                if step == stop {
                    break;
                }
            }
            if stop == STEPS {
                let mut expected = State::new();
                expected.named();
                (0..STEPS).for_each(|step| expected.compute(step + u64::from(rank)));
                assert_eq!(state, expected);
                run.close(true).unwrap();
            }
        }
        begun
    });
    assert_eq!(begun[0], begun[1]);
    assert_eq!(begun[0], begun[2]);
    assert!(
        begun[0][0] == 0 && begun[0][1] > 0 && begun[0][2] > begun[0][1],
        "{begun:?}"
    );
}

/// If one rank has another shape no rank restores.
#[test]
fn ranks_refuse_together() {
    let folder = TempDir::new().unwrap();
    let work = |path: &Path, rank: u32, start: &str, length: usize| {
        let mut data = vec![7_i32; length];
        let mut run = SavedRun::open(options(path, rank, 2, start))?;
        let result = run.step(1, &mut [Named::array("data", &mut data)]);
        if result.is_ok() {
            run.step(1, &mut [Named::array("data", &mut data)])?;
        }
        result.map(|step| (step, data.len()))
    };
    for (start, wrong) in [("a", 9), ("b", 9), ("c", 8), ("d", 9)] {
        let path = folder.path().to_owned();
        let found = job(2, move |rank| {
            let length = if rank == 1 { wrong } else { 9 };
            work(&path, rank, start, length)
        });
        match (start, &found[..]) {
            ("a", [Ok((Some(0), 9)), Ok((Some(0), 9))]) | ("b" | "d", [Ok((None, 9)), Ok((None, 9))]) => {}
            (
                "c",
                [
                    Err(RunError::OtherRank { rank: 1, .. }),
                    Err(RunError::Mismatch(_)),
                ],
            ) => {}
            _ => panic!("start {start}: {found:?}"),
        }
    }
}

/// Ranks without a start, and ranks that do not exist, are errors that say what to do.
#[test]
fn ranks_need_a_start() {
    let folder = TempDir::new().unwrap();
    let opened = |options| SavedRun::open(options).unwrap_err().to_string();
    let none = RunOptions {
        start: None,
        ..options(folder.path(), 1, 4, "")
    };
    assert!(opened(none).contains("`ropewalk run --checkpoint DIR`"));
    assert!(opened(options(folder.path(), 4, 4, "a")).contains("rank 4 of 4 does not exist"));
}
