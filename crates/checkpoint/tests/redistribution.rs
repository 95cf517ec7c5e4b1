//! Named arrays that are partitioned over the ranks are restored on other numbers of ranks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use ropewalk_checkpoint::{
    Named, RunError, RunOptions, SavedRun, SavedValue, State, StoreOptions, SupervisionOptions, Supervisor,
    SupervisorError, survey,
};
use tempfile::TempDir;

/// Columns of the partitioned array.
const COLUMNS: u64 = 3;

fn options(folder: &Path, rank: u32, ranks: u32, start: &str) -> RunOptions {
    // A supervisor counts the start too.
    let job = RunOptions::of_job(Some(folder)).unwrap().with_mtbf(1e6);
    RunOptions {
        store: StoreOptions {
            rank,
            ranks,
            start: start.parse().ok(),
            ..StoreOptions::new(folder)
        },
        start: Some(start.into()),
        patience: Duration::from_secs(20),
        ..job
    }
}

/// A name for each start of a job.
fn next_start() -> String {
    static STARTS: AtomicU32 = AtomicU32::new(0);
    STARTS.fetch_add(1, Ordering::Relaxed).to_string()
}

/// Does the work of all ranks, each in a thread with its first row.
fn on_ranks<T: Send>(counts: &[u64], work: impl Fn(u32, u64, u64) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let mut first = 0;
        let mut threads = Vec::new();
        for (rank, &rows) in (0..).zip(counts) {
            let (work, begin) = (&work, first);
            threads.push(scope.spawn(move || work(rank, begin, rows)));
            first += rows;
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn element(row: u64, column: u64, step: u64) -> f64 {
    (1000 * step + COLUMNS * row + column) as f64
}

fn rows_after(step: u64, first: u64, rows: u64) -> Vec<f64> {
    let cells = first * COLUMNS..(first + rows) * COLUMNS;
    cells
        .map(|cell| element(cell / COLUMNS, cell % COLUMNS, step))
        .collect()
}

/// A job of so many ranks with these numbers of rows goes on until a step; the step from which it went on. Every rank
/// checks what it has restored.
fn job(folder: &Path, counts: &[u64], steps: u64) -> Result<u64, Vec<RunError>> {
    job_of(&next_start(), folder, counts, steps)
}

fn job_of(start: &str, folder: &Path, counts: &[u64], steps: u64) -> Result<u64, Vec<RunError>> {
    let ranks = counts.len() as u32;
    let begun = on_ranks(counts, |rank, first, rows| {
        let mut u = rows_after(0, first, rows);
        // Not partitioned, and the same on all ranks.
        let mut edges = [1.5, 2.5];
        let mut note = SavedValue {
            kind: "str".into(),
            bytes: Vec::new(),
        };
        let mut run = SavedRun::open(options(folder, rank, ranks, start))?;
        let shape = [rows, COLUMNS];
        let mut begun = None;
        loop {
            let state = &mut [
                Named::array("edges", &mut edges),
                Named::array_of_shape("u", &mut u, &shape).partitioned(),
                Named::value("note", &mut note),
            ];
            let next = run.step(steps, state)?;
            let done = run.steps_done();
            if begun.is_none() {
                begun = Some(done);
                assert_eq!(u, rows_after(done, first, rows), "rank {rank} of {ranks}");
                let text = if done == 0 {
                    String::new()
                } else {
                    format!("{done} steps")
                };
                assert_eq!((edges[1], &note.bytes), (2.5 + done as f64, &text.into_bytes()));
            }
            let Some(step) = next else { break };
            u.iter_mut().for_each(|value| *value += 1000.0);
            edges[1] += 1.0;
            note.bytes = format!("{} steps", step + 1).into_bytes();
        }
        run.close(true)?;
        Ok(begun.unwrap_or_default())
    });
    let mut errors = Vec::new();
    let mut steps = Vec::new();
    for result in begun {
        match result {
            Ok(step) => steps.push(step),
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => {
            assert!(steps.windows(2).all(|pair| pair[0] == pair[1]), "{steps:?}");
            Ok(steps[0])
        }
        false => Err(errors),
    }
}

/// So many rows, cut at some places for some ranks.
fn cut(rows: u64, places: &[u64]) -> Vec<u64> {
    let mut places: Vec<u64> = places.iter().map(|place| place % (rows + 1)).collect();
    places.sort_unstable();
    places.push(rows);
    let mut last = 0;
    places
        .into_iter()
        .map(|place| place - std::mem::replace(&mut last, place))
        .collect()
}

fn config() -> ProptestConfig {
    ProptestConfig {
        max_shrink_iters: 50,
        failure_persistence: None,
        ..ProptestConfig::with_cases(24)
    }
}

proptest! {
    #![proptest_config(config())]

    /// Whatever ranks had which rows, the next ones have the array of the newest whole save, and save it; nothing
    /// of other numbers of ranks stays. A supervisor chooses the same save.
    #[test]
    fn rows_survive_any_change_of_ranks(
        rows in 0_u64..40,
        jobs in prop::collection::vec(
            (prop::collection::vec(any::<u64>(), 0..4), prop::option::weighted(0.4, any::<u64>()), any::<bool>()),
            2..6,
        ),
    ) {
        let folder = TempDir::new().unwrap();
        let supervisor = Supervisor::new(folder.path(), SupervisionOptions::default()).unwrap();
        let mut whole = vec![0];
        let (mut is_any_torn, mut torn_in_turn) = (false, 0);
        for (places, torn, is_supervised) in &jobs {
            let (counts, done, start) = (cut(rows, places), *whole.last().unwrap(), next_start());
            if *is_supervised {
                let found = supervisor.restore(start.parse().unwrap(), counts.len() as u32).unwrap();
                prop_assert_eq!(found.from.map_or(0, |(held, _)| held.step), done);
            }
            prop_assert_eq!(job_of(&start, folder.path(), &counts, done + 1).unwrap(), done);
            whole.push(done + 1);
            torn_in_turn += 1;
            // After three starts in vain the generation before is taken.
            if let Some(torn) = torn.filter(|_| torn_in_turn < 3) {
                tear(folder.path(), counts.len() as u64, torn);
                whole.pop();
                is_any_torn = true;
            } else {
                torn_in_turn = 0;
            }
        }
        // Three more saves of one number: parts of other numbers are removed.
        let (last, mut done) = (cut(rows, &jobs[0].0), *whole.last().unwrap());
        for _ in 0..3 {
            prop_assert_eq!(job(folder.path(), &last, done + 1).unwrap(), done);
            done += 1;
        }
        let found = survey(folder.path()).unwrap();
        prop_assert_eq!(found.quarantined.is_empty(), !is_any_torn);
        prop_assert!(found.quarantined.len() <= 2);
        let ranks = Some(last.len() as u32);
        prop_assert!(found.generations.iter().all(|one| one.ranks == ranks), "{:?}", found.generations);
        // A rank that was ahead of others removes the oldest of three at its next save.
        let newest = found.generations.iter().rev().take(2);
        prop_assert!(newest.clone().all(|one| one.state == State::Whole), "{:?}", found.generations);
        prop_assert_eq!(newest.count(), 2);
    }
}

/// Damages the part of one rank of the newest save.
fn tear(folder: &Path, ranks: u64, how: u64) {
    let generations = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let newest = generations
        .filter(|path| path.to_str().unwrap().contains("/generation-"))
        .max()
        .unwrap();
    let part = newest.join(format!("rank-{:05}", how % ranks));
    let state = part.join("state");
    match how / ranks % 3 {
        0 => fs::remove_file(part.with_extension("manifest")).unwrap(),
        1 => fs::remove_file(state).unwrap(),
        _ => {
            let mut bytes = fs::read(&state).unwrap();
            bytes.pop();
            fs::write(state, bytes).unwrap();
        }
    }
}

fn said(errors: Result<u64, Vec<RunError>>) -> Vec<String> {
    errors.unwrap_err().iter().map(ToString::to_string).collect()
}

/// Another number of rows is an error on all ranks, as often as somebody tries, and nothing is lost.
#[test]
fn the_sum_of_rows_has_to_be_the_same() {
    let folder = TempDir::new().unwrap();
    assert_eq!(job(folder.path(), &[4, 4], 1).unwrap(), 0);
    for _ in 0..5 {
        for error in said(job(folder.path(), &[3, 3, 3], 2)) {
            let expected = "the rows of u cannot be distributed: the save holds 8 rows of all ranks together, and the \
                            ranks of this job have room for 9";
            assert!(error.contains(expected), "{error}");
        }
    }
    assert_eq!(job(folder.path(), &[2, 3, 3], 2).unwrap(), 1);
    assert!(!folder.path().join("quarantine").exists());
}

/// A rank saves and restores an array that is not partitioned, and one that is; the array and the steps restored.
fn simple(folder: &Path, rank: u32, ranks: u32, start: &str, marked: bool, v: f64) -> Result<f64, RunError> {
    let (mut u, mut v) = (vec![f64::from(rank); 12 / ranks as usize], vec![v; 2]);
    let mut run = SavedRun::open(options(folder, rank, ranks, start))?;
    for _ in 0..2 {
        let u = Named::array("u", &mut u);
        let u = if marked { u.partitioned() } else { u };
        run.step(1, &mut [u, Named::array("v", &mut v)])?;
    }
    run.close(true)?;
    Ok(v[0])
}

/// A save without marks, marks on some ranks only, and copies that differ are refused with their names.
#[test]
fn what_cannot_be_distributed_is_refused() {
    let folder = TempDir::new().unwrap();
    let all = |folder: &Path,
               ranks: u32,
               marked: &(dyn Fn(u32) -> bool + Sync),
               v: &(dyn Fn(u32) -> f64 + Sync)| {
        let start = next_start();
        let work = |rank, _, _| simple(folder, rank, ranks, &start, marked(rank), v(rank));
        on_ranks(&vec![0; ranks as usize], work)
    };
    let texts = |found: Vec<Result<f64, RunError>>| -> Vec<String> {
        found
            .into_iter()
            .map(|found| found.unwrap_err().to_string())
            .collect()
    };
    let path = folder.path().join("unmarked");
    all(&path, 2, &|_| false, &|_| 5.0)
        .into_iter()
        .for_each(|found| assert!(found.is_ok(), "{found:?}"));
    for text in texts(all(&path, 3, &|_| false, &|_| 0.0)) {
        assert!(
            text.contains("holds checkpoints of 2 ranks, and this job has 3"),
            "{text}"
        );
        assert!(
            text.contains("only named arrays that are saved and restored as partitioned"),
            "{text}"
        );
    }
    for text in texts(all(&path, 3, &|_| true, &|_| 0.0)) {
        assert!(
            text.contains("u was saved on 2 ranks without the mark of a partitioned array"),
            "{text}"
        );
    }
    for text in texts(all(&path, 2, &|rank| rank == 0, &|_| 0.0)) {
        assert!(
            text.starts_with("u is float64 of 8 bytes, shape 6 on rank 1, and float64"),
            "{text}"
        );
    }
    // As many ranks and rows as before may add the mark, for the next save.
    let found = all(&path, 2, &|_| true, &|_| 0.0);
    assert!(found.iter().all(|found| matches!(found, Ok(5.0))), "{found:?}");

    let path = folder.path().join("copies");
    all(&path, 4, &|_| true, &f64::from)
        .into_iter()
        .for_each(|found| assert!(found.is_ok(), "{found:?}"));
    let found = texts(all(&path, 3, &|_| true, &f64::from));
    for text in found {
        let expected =
            "v is not partitioned, and ranks 1, 2, 3 of the 4 ranks that saved it had other content";
        assert!(text.contains(expected), "{text}");
    }
    // The own copies of as many ranks may differ.
    let found = all(&path, 4, &|_| true, &|_| -1.0);
    assert!(
        found
            .iter()
            .zip(0..)
            .all(|(found, rank)| *found.as_ref().unwrap() == f64::from(rank))
    );
    assert!(!path.join("quarantine").exists());
}

/// Ranks that do not see one directory say which file they miss.
#[test]
fn ranks_have_to_see_one_directory() {
    let folder = TempDir::new().unwrap();
    let start = next_start();
    let errors = on_ranks(&[0, 0], |rank, _, _| {
        let path = folder.path().join(rank.to_string());
        let mut options = options(&path, rank, 2, &start);
        options.patience = Duration::from_millis(200);
        let mut u = [0.0];
        let mut run = SavedRun::open(options).unwrap();
        let error = run
            .restore(&mut [Named::array("u", &mut u).partitioned()])
            .unwrap_err();
        let source = std::error::Error::source(&error).unwrap();
        (source.to_string(), path)
    });
    for (rank, (text, path)) in errors.into_iter().enumerate() {
        let missing = path.join(format!("meeting-{start}/0-{}", 1 - rank));
        let expected = format!(
            "{} does not exist; all ranks have to be started, and to see",
            missing.display()
        );
        assert!(text.contains(&expected), "{text}");
    }
    // They meet in one directory, but the second sees other files in the place of the generations.
    let path = folder.path().join("shared");
    assert_eq!(job(&path, &[2, 2], 1).unwrap(), 0);
    let other = folder.path().join("other");
    fs::create_dir_all(&other).unwrap();
    let generation = path.join("generation-0000000001");
    for name in ["rank-00001", "rank-00001.manifest"] {
        fs::create_dir_all(other.join("generation-0000000001")).unwrap();
        fs::rename(
            generation.join(name),
            other.join("generation-0000000001").join(name),
        )
        .unwrap();
    }
    let start = next_start();
    std::os::unix::fs::symlink(
        path.join(format!("meeting-{start}")),
        other.join(format!("meeting-{start}")),
    )
    .unwrap();
    fs::create_dir_all(path.join(format!("meeting-{start}"))).unwrap();
    let errors = on_ranks(&[1, 3], |rank, _, rows| {
        let path = if rank == 0 { &path } else { &other };
        let mut u = vec![0.0; (rows * COLUMNS) as usize];
        let (mut edges, mut note) = ([0.0; 2], SavedValue::default());
        note.kind = "str".into();
        let shape = [rows, COLUMNS];
        let mut run = SavedRun::open(options(path, rank, 2, &start)).unwrap();
        let state = &mut [
            Named::array("edges", &mut edges),
            Named::array_of_shape("u", &mut u, &shape).partitioned(),
            Named::value("note", &mut note),
        ];
        run.restore(state).unwrap_err().to_string()
    });
    let missing = other.join("generation-0000000001/rank-00000/state");
    for error in errors {
        assert!(
            error.contains(&format!(
                "{} is not the file that rank 0 saved",
                missing.display()
            )),
            "{error}"
        );
    }
}

/// A supervisor starts jobs of another number of ranks from partitioned arrays, and from the newest generation of which
/// no part is missing, whatever number saved it.
#[test]
fn a_supervisor_starts_another_number() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("saves");
    let supervisor = Supervisor::new(&path, SupervisionOptions::default()).unwrap();
    let restored = |ranks| {
        let found = supervisor.restore(7, ranks).unwrap();
        (
            found.from.map(|(held, _)| (held.step, held.ranks)),
            found.quarantined.len(),
        )
    };
    assert_eq!(restored(3), (None, 0));
    assert_eq!(job(&path, &[3, 1, 2], 1).unwrap(), 0);
    assert_eq!(restored(2), (Some((1, 3)), 0));
    assert_eq!(job(&path, &[5, 1], 2).unwrap(), 1);
    assert_eq!(restored(3), (Some((2, 2)), 0));
    // The second of two ranks did not come to its save.
    let part = path.join("generation-0000000002/rank-00001");
    fs::remove_file(part.with_extension("manifest")).unwrap();
    assert_eq!(restored(2), (Some((1, 3)), 2));
    assert_eq!(job(&path, &[6], 3).unwrap(), 1);
    assert_eq!(job(&path, &[1, 1, 1, 3], 4).unwrap(), 3);

    let unmarked = folder.path().join("unmarked");
    let start = next_start();
    on_ranks(&[0, 0], |rank, _, _| {
        simple(&unmarked, rank, 2, &start, false, 0.0).unwrap()
    });
    let supervisor = Supervisor::new(&unmarked, SupervisionOptions::default()).unwrap();
    let error = supervisor.restore(8, 3).unwrap_err();
    assert!(
        matches!(
            error,
            SupervisorError::OtherRanks {
                saved: 2,
                ranks: 3,
                ..
            }
        ),
        "{error}"
    );
}
