//! `ropewalk run --on-failure restart --checkpoint DIR` with a program in C that is killed at random.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ropewalk::checkpoint::{JournalFile, Store, StoreOptions};
use tempfile::TempDir;

use rig::ROPEWALK;

/// About a second of computing.
const STEPS: &str = "60000";

/// Four seconds and a half at least.
const RANK_STEPS: &str = "1500";

/// The example of the C library.
fn heat(folder: &TempDir) -> PathBuf {
    compiled("../checkpoint-c/examples/heat.c", folder)
}

fn compiled(source: &str, folder: &TempDir) -> PathBuf {
    rig::compile(source, &["rw_checkpoint", "pmi"], folder.path())
}

fn run(words: &[&str]) -> Output {
    rig::output(rig::run(words))
}

/// A program that is killed again and again comes to the end that it would have come to, from checkpoint to checkpoint;
/// the table and the page tell what that cost, and the journal counts each failure once.
///
/// It kills itself when chance wants it, which may be never, or only before its first save: so it is run
/// until it went on from a checkpoint, which one run in ten does not.
#[test]
fn a_job_goes_on_from_its_checkpoints() {
    let folder = TempDir::new().unwrap();
    let program = heat(&folder).display().to_string();
    let path = |name: String| folder.path().join(name).display().to_string();
    let calm = path("calm".to_owned());
    let expected = run(&[&program, &calm, STEPS]);
    assert!(expected.status.success(), "{expected:?}");
    let restores = (0..12).map(|trial| {
        let (killed, report) = (path(format!("killed-{trial}")), path(format!("report-{trial}")));
        let supervised = [
            "--on-failure",
            "restart",
            "--checkpoint",
            &killed,
            "--report",
            &report,
        ];
        let found = run(&[&supervised[..], &[&program, &killed, STEPS, "0.4"]].concat());
        let text = String::from_utf8(found.stderr.clone()).unwrap();
        assert!(found.status.success(), "{text}");
        assert_eq!(found.stdout, expected.stdout);
        let (_, history) = JournalFile::open(Path::new(&killed).join("journal")).unwrap();
        let totals = history.totals();
        let count = |words: &str| text.matches(words).count() as u64;
        assert_eq!(totals.failures, count("the job is started again"), "{text}");
        assert_eq!(totals.restores, count("starts from generation"), "{text}");
        assert_eq!(history.open_ran(), None, "the end is in the journal");
        assert!(
            count("measured overhead") == 1 && count("fixed: every") > 1,
            "{text}"
        );
        assert!(fs::read_to_string(report).unwrap().contains("<polyline"));
        totals.restores
    });
    assert!(
        restores.into_iter().any(|restores| restores > 0),
        "none went on from a checkpoint"
    );
}

/// Where the directory with the checkpoints is lost, a job goes on from what was uploaded last.
#[cfg(feature = "object-store")]
#[test]
fn a_job_goes_on_from_what_was_uploaded() {
    let folder = TempDir::new().unwrap();
    let program = heat(&folder).display().to_string();
    let [calm, saved, store] =
        ["calm", "saved", "store"].map(|name| folder.path().join(name).display().to_string());
    let expected = run(&[&program, &calm, STEPS]);
    assert!(expected.status.success(), "{expected:?}");
    fs::create_dir(&store).unwrap();
    let url = format!("file://{store}");
    let words = [
        "--on-failure",
        "restart",
        "--checkpoint",
        &saved,
        "--mtbf-known",
        "0.2",
        "--upload",
        &url,
        &program,
        &saved,
        STEPS,
    ];
    for is_lost in [false, true] {
        let found = run(&words);
        let text = String::from_utf8(found.stderr).unwrap();
        assert!(found.status.success(), "{text}");
        assert_eq!(found.stdout, expected.stdout);
        let fetched =
            text.contains(&format!("was fetched from {url}")) && text.contains("starts from generation");
        assert_eq!(fetched, is_lost, "{text}");
        fs::remove_dir_all(&saved).unwrap();
    }
}

/// Several ranks that save together are killed at random, and end as if nothing had been: all begin again at
/// the step that all of them have. The table at the end has what the journal says.
#[test]
fn ranks_that_are_killed_at_random_go_on_together() {
    let folder = TempDir::new().unwrap();
    let program = compiled("tests/checkpoint_c/ranks.c", &folder)
        .display()
        .to_string();
    let [calm, killed] = ["calm", "killed"].map(|name| folder.path().join(name).display().to_string());
    let sorted = |output: &Output| {
        let mut lines: Vec<_> = String::from_utf8(output.stdout.clone())
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let expected = run(&["-n", "3", &program, &calm, RANK_STEPS]);
    assert!(expected.status.success(), "{expected:?}");
    // With this seed the first two attempts are killed after about two seconds, and the third not within a minute.
    let words = format!(
        "-n 3 --on-failure restart --checkpoint {killed} --mtbf-known 2 --inject-mtbf 20 --seed 37857"
    );
    let words: Vec<&str> = words.split(' ').collect();
    let found = run(&[&words[..], &[&program, &killed, RANK_STEPS]].concat());
    let text = String::from_utf8(found.stderr.clone()).unwrap();
    assert!(found.status.success(), "{text}");
    assert_eq!(sorted(&found), sorted(&expected), "{text}");
    assert_eq!(sorted(&found).len(), 3);

    let restarts = text.matches("the job is started again").count();
    assert!(restarts >= 2, "{text}");
    assert_eq!(text.matches("is killed on purpose").count(), restarts, "{text}");
    assert!(text.contains("starts from generation"), "{text}");
    let (_, history) = JournalFile::open(Path::new(&killed).join("journal")).unwrap();
    let totals = history.totals();
    assert_eq!(totals.failures, restarts as u64, "{text}");
    let value = |name: &str| {
        let line = text.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        line.rsplit('┆')
            .next()
            .unwrap()
            .trim_matches([' ', '│'])
            .to_owned()
    };
    assert_eq!(value("failures"), restarts.to_string());
    assert_eq!(value("attempts"), (restarts + 1).to_string());
    assert!(
        value("│ saves").starts_with(&format!("{}, ", totals.saves)),
        "{text}"
    );
    assert!(totals.saves > 2 && totals.lost > 0.0, "{totals:?}");
    for name in [
        "lost work",
        "measured overhead",
        "expected overhead",
        "best interval",
    ] {
        value(name);
    }
    assert_eq!(text.matches("fixed: every").count(), 5, "{text}");
    // Each culprit is told once, when it happens.
    assert_eq!(text.matches("was killed by signal 9").count(), restarts, "{text}");
}

/// Two failures within seconds are believed, whatever nobody knew before, and the table tells the program's
/// belief. What it expects and what it measured are not worlds apart.
#[test]
fn the_table_tells_what_the_program_has_learned() {
    let folder = TempDir::new().unwrap();
    let program = compiled("tests/checkpoint_c/ranks.c", &folder)
        .display()
        .to_string();
    let saves = folder.path().join("saves").display().to_string();
    let words = format!("-n 3 --on-failure restart --checkpoint {saves} --inject-mtbf 20 --seed 37857");
    let words: Vec<&str> = words.split(' ').collect();
    let found = run(&[&words[..], &[&program, &saves, RANK_STEPS]].concat());
    let text = String::from_utf8(found.stderr.clone()).unwrap();
    assert!(found.status.success(), "{text}");
    let value = |name: &str, unit: &str| -> f64 {
        let line = text.lines().find(|line| line.contains(name)).expect(name);
        let value = line.rsplit('┆').next().unwrap().trim_matches([' ', '│']);
        let number = value.strip_suffix(unit).unwrap_or_else(|| panic!("{text}"));
        number.trim().parse().unwrap_or_else(|_| panic!("{text}"))
    };
    assert!(value("mean time between failures", "s, learned") < 60.0, "{text}");
    assert!(value("expected overhead", "%") > 0.5, "{text}");
    for line in [
        "starting and ending the program",
        "back-off between attempts",
        "measured overhead",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// A generation that was changed is put aside before the start, and the one before it is taken.
#[test]
fn a_changed_generation_is_not_started_from() {
    let folder = TempDir::new().unwrap();
    let program = heat(&folder).display().to_string();
    let saves = folder.path().join("saves");
    let words = [
        "--checkpoint",
        saves.to_str().unwrap(),
        "--on-failure",
        "restart=0",
        "--mtbf-known",
        "0.01",
    ];
    let directory = saves.display().to_string();
    let first = run(&[&words[..], &[&program, &directory, STEPS]].concat());
    assert!(first.status.success(), "{first:?}");
    let mut generations: Vec<PathBuf> = fs::read_dir(&saves)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("generation-")
        })
        .collect();
    generations.sort();
    let [older, newer] = &generations[..] else {
        panic!("two are kept: {generations:?}");
    };
    let file = newer.join("rank-00000/rod");
    let mut content = fs::read(&file).unwrap();
    content[4000] ^= 1;
    fs::write(&file, content).unwrap();
    let again = run(&[&words[..], &["sh", "-c", "echo $ROPEWALK_RESTORE"]].concat());
    let text = String::from_utf8_lossy(&again.stderr);
    assert!(text.contains("put aside in"), "{text}");
    let shown = String::from_utf8(again.stdout).unwrap();
    assert_eq!(
        shown.trim_end(),
        older.canonicalize().unwrap().display().to_string()
    );
    assert!(saves.join("quarantine").exists() && !newer.exists());
}

/// A wrong name of a program is no failure from which the mean time between failures is learned, an error of
/// the program is.
#[test]
fn what_never_ran_has_not_failed() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("checkpoints");
    let checkpoint = [
        "--on-failure",
        "restart=0",
        "--checkpoint",
        directory.to_str().unwrap(),
    ];
    for (program, code, failures) in [("./no-such-program", 127, 0), ("false", 1, 1)] {
        let output = run(&[&checkpoint[..], &["--", program]].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let (_, history) = JournalFile::open(directory.join("journal")).unwrap();
        assert_eq!(history.totals().failures, failures, "{output:?}");
    }
}

/// Saves so many generations as ranks of a job would, each with its number in a file.
fn save_generations(directory: &Path, ranks: u32, generations: u64) {
    let open = |rank| {
        Store::open(StoreOptions {
            rank,
            ranks,
            ..StoreOptions::new(directory)
        })
    };
    let stores: Vec<Store> = (0..ranks).map(open).collect::<Result<_, _>>().unwrap();
    for mut store in stores {
        for step in 1..=generations {
            let save = store.begin(step).unwrap();
            fs::write(save.folder().join("state"), step.to_string()).unwrap();
            store.commit(save).unwrap();
        }
    }
}

/// A job of another number of ranks than the one that saved is not started, and nothing is moved.
#[test]
fn checkpoints_of_another_number_of_ranks_stay() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().to_str().unwrap();
    save_generations(folder.path(), 3, 2);
    let words = ["--on-failure", "restart", "--checkpoint", directory];
    for ranks in ["1", "2", "4"] {
        let refused = run(&[&words[..], &["-n", ranks, "echo", "started"]].concat());
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(125), "{text}");
        let reason = format!("checkpoints of 3 ranks, and this job has {ranks}");
        assert!(text.contains(&reason) && text.contains("-n 3"), "{text}");
        assert_eq!(refused.stdout, b"");
        assert!(!folder.path().join("quarantine").exists());
    }
    let again = run(&[
        &words[..],
        &["-n", "3", "sh", "-c", "echo $ROPEWALK_RESTORE_STEP"],
    ]
    .concat());
    assert_eq!(String::from_utf8(again.stdout).unwrap(), "2\n2\n2\n");
}

/// One rank may save for all, however many those are; and where nothing is whole there is nothing to refuse for.
#[test]
fn one_rank_may_save_for_all() {
    let folder = TempDir::new().unwrap();
    let [one, torn] = ["one", "torn"].map(|name| folder.path().join(name));
    save_generations(&one, 1, 2);
    save_generations(&torn, 2, 1);
    fs::write(torn.join("generation-0000000001/rank-00001/state"), "other").unwrap();
    for (directory, expected) in [(one, "2\n2\n2\n"), (torn, "\n\n\n")] {
        let words = ["--checkpoint", directory.to_str().unwrap(), "-n", "3"];
        let found = run(&[&words[..], &["sh", "-c", "echo $ROPEWALK_RESTORE_STEP"]].concat());
        assert!(found.status.success(), "{found:?}");
        assert_eq!(String::from_utf8(found.stdout).unwrap(), expected);
    }
}

/// A program that dies whenever it starts from the newest generation gets to its end from the one before, in one run.
#[test]
fn a_generation_from_which_a_job_dies_is_passed_over() {
    let folder = TempDir::new().unwrap();
    save_generations(folder.path(), 1, 2);
    let script = "case $ROPEWALK_RESTORE in *2) kill -9 $$;; esac; echo $ROPEWALK_RESTORE_STEP";
    let directory = folder.path().to_str().unwrap();
    let words = ["--on-failure", "restart", "--checkpoint", directory];
    let found = run(&[&words[..], &["sh", "-c", script]].concat());
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(found.status.success(), "{text}");
    assert_eq!(found.stdout, b"1\n");
    assert_eq!(text.matches("starts from generation 2").count(), 3, "{text}");
    assert!(text.contains("attempt 4 starts from generation 1"), "{text}");
    assert!(folder.path().join("quarantine").exists());
}

/// A program that fails at the same step again and again is given up although it saves, its fault is no event
/// of the mean time between failures, and the verdict says why.
#[test]
fn a_crash_loop_ends() {
    let folder = TempDir::new().unwrap();
    let program = compiled("tests/checkpoint_c/faults.c", &folder);
    let saves = folder.path().join("saves");
    let words = ["--on-failure", "restart", "--restart-limit", "2", "--checkpoint"];
    let found = run(&[
        &words[..],
        &[saves.to_str().unwrap(), program.to_str().unwrap(), "raise"],
    ]
    .concat());
    let text = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(3), "{text}");
    let why =
        "the job was not started again: 2 attempts in a row reached no step that was not reached before";
    assert!(text.contains(why), "{text}");
    assert_eq!(text.matches("is started again").count(), 2, "{text}");
    for times in [2, 3] {
        let same = format!("the same rank failed in the same way at step 19 in {times} attempts");
        assert!(text.contains(&same), "{text}");
    }
    let (_, history) = JournalFile::open(saves.join("journal")).unwrap();
    assert_eq!(history.totals().failures, 1, "{text}");
    let refused = run(&["--restart-limit", "2", "true"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("wants --on-failure restart"), "{text}");
}

/// How long attempts last says nothing of whether they come to something.
#[test]
fn a_crash_loop_without_checkpoints_ends() {
    let found = run(&[
        "--on-failure",
        "restart",
        "--restart-limit",
        "2",
        "sh",
        "-c",
        "exit 4",
    ]);
    let text = String::from_utf8(found.stderr).unwrap();
    assert_eq!(found.status.code(), Some(4), "{text}");
    assert_eq!(text.matches("is started again").count(), 1, "{text}");
    assert!(text.contains("2 attempts in a row"), "{text}");
}

/// Saves that fail are told while the job runs, in the log, and in the table at the end.
#[test]
fn failed_saves_are_told() {
    let folder = TempDir::new().unwrap();
    let program = compiled("tests/checkpoint_c/faults.c", &folder);
    let saves = folder.path().join("saves");
    let words = ["--log", "json", "--checkpoint", saves.to_str().unwrap()];
    let found = run(&[&words[..], &[program.to_str().unwrap(), "unsaved"]].concat());
    let text = String::from_utf8(found.stderr).unwrap();
    assert!(found.status.success(), "{text}");
    for expected in [
        "ropewalk: saves fail: nothing is saved since",
        "\"event\":\"saves_fail\"",
        "\"saves_failed\":9",
        "saves that failed",
        "9, unprotected since",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

/// The content of a directory is told without touching it, also of a case of OpenFOAM; another directory is refused.
#[test]
fn checkpoints_can_be_looked_at() {
    let folder = TempDir::new().unwrap();
    let case = folder.path().join("case");
    let saves = case.join("checkpoints");
    fs::create_dir_all(case.join("system")).unwrap();
    fs::write(case.join("system/controlDict"), "").unwrap();
    save_generations(&saves, 2, 3);
    fs::write(saves.join("generation-0000000003/rank-00001/state"), "4").unwrap();
    fs::remove_file(saves.join("generation-0000000002/rank-00001/state")).unwrap();
    let look = |words: &[&str]| {
        let output = Command::new(ROPEWALK)
            .arg("checkpoints")
            .args(words)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    for directory in [&saves, &case] {
        let (code, text) = look(&[directory.to_str().unwrap(), "--json"]);
        assert_eq!(code, Some(0), "{text}");
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["newest_whole"], 1);
        let states: Vec<_> = (0..3).map(|at| &found["generations"][at]["state"]).collect();
        assert_eq!(states, ["whole", "not-whole", "not-whole"]);
        let reason = |at: usize| found["generations"][at]["reasons"][0].as_str().unwrap();
        assert!(reason(1).ends_with("rank-00001/state is missing"), "{text}");
        assert!(reason(2).ends_with("rank-00001/state was changed"), "{text}");
        assert_eq!(found["generations"][0]["step"], 1);
    }
    let (_, text) = look(&[saves.to_str().unwrap()]);
    assert!(
        text.contains("not whole: ") && text.contains("┆ whole "),
        "{text}"
    );
    for (directory, expected) in [("src", "holds no checkpoints"), ("no-such", "cannot read")] {
        let (code, text) = look(&[directory]);
        assert!(code == Some(1) && text.contains(expected), "{text}");
    }
}
