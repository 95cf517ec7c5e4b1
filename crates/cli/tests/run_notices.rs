//! Jobs whose end is announced: they save before it, in Rust, C and Python, and the exit code says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant, SystemTime},
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, signal};

/// More than anybody waits for.
const FOR_EVER: &str = "1000000000";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A job with checkpoints in `saves`.
fn job(saves: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(ROPEWALK);
    command
        .args(["run", "--on-failure", "restart", "--checkpoint"])
        .arg(saves)
        // Without a guess the first save comes after an hour.
        .args(["--mtbf", "2"])
        .args(options)
        .args(program)
        .env("PYTHONPATH", here().join("../../bindings/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RW_CHECKPOINT_LIBRARY", rig::library("rw_checkpoint"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Two ranks in Rust, each with a store, and rank 0 with the advisor.
fn saving_ranks() -> String {
    rig::example("saving_ranks").display().to_string()
}

/// Two ranks in C.
fn ranks_in_c(folder: &Path) -> String {
    let program = rig::compile("tests/checkpoint_c/ranks.c", &["rw_checkpoint", "pmi"], folder);
    program.display().to_string()
}

/// The newest generation, when its last manifest was made, and how many ranks have one.
fn newest(saves: &Path) -> Option<(String, SystemTime, usize)> {
    let folders = fs::read_dir(saves).ok()?.flatten();
    let generation = folders
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("generation-"))
        .max_by_key(fs::DirEntry::file_name)?;
    let entries = fs::read_dir(generation.path()).ok()?.flatten();
    let manifests = entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "manifest"));
    let times: Vec<_> = manifests
        .filter_map(|entry| entry.metadata().ok()?.modified().ok())
        .collect();
    let name = generation.file_name().to_string_lossy().into_owned();
    Some((name, *times.iter().max()?, times.len()))
}

/// Waits until a job has saved, so that its advisor is there.
fn await_save(job: &mut Child, saves: &Path) {
    let deadline = Instant::now() + PATIENCE;
    while newest(saves).is_none() {
        assert!(Instant::now() < deadline, "nothing is saved");
        assert_eq!(job.try_wait().unwrap(), None, "it ended");
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(300));
}

/// Says if there are ranks that save here, of whose variables one says where.
fn has_ranks(saves: &Path) -> bool {
    let saves = saves.to_str().unwrap();
    rig::all_pids().any(|pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&variables).contains(saves)
    })
}

fn end(mut job: Child) -> (i32, String) {
    rig::await_end(&mut job, PATIENCE);
    let Output { status, stderr, .. } = job.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

/// SIGTERM leads to a save of all ranks after it, in each language without code of the program's; then the
/// job is ended with 75, and another start goes on from there.
#[test]
fn a_job_that_is_told_to_end_saves_first() {
    let folder = TempDir::new().unwrap();
    let in_c = ranks_in_c(folder.path());
    let heat = here().join("../../bindings/python/examples/heat.py");
    let heat = heat.to_str().unwrap();
    let in_rust = saving_ranks();
    for (name, ranks, words) in [
        ("rust", "2", vec![in_rust.as_str(), FOR_EVER, "advised"]),
        ("c", "2", vec![in_c.as_str(), "SAVES", FOR_EVER]),
        ("python", "1", vec!["/usr/bin/python3", heat, "SAVES", FOR_EVER]),
    ] {
        let saves = folder.path().join(name);
        let path = saves.to_str().unwrap();
        let words: Vec<_> = words
            .into_iter()
            .map(|word| if word == "SAVES" { path } else { word })
            .collect();
        let options = ["-n", ranks, "--grace", "60"];
        let mut first = job(&saves, &options, &words).spawn().unwrap();
        await_save(&mut first, &saves);
        let told = SystemTime::now();
        signal("TERM", first.id());
        let (code, stderr) = end(first);
        assert_eq!(code, 75, "{name}: {stderr}");
        assert!(stderr.contains("it has saved a checkpoint"), "{name}: {stderr}");
        let (generation, saved, manifests) = newest(&saves).unwrap();
        assert!(
            saved >= told,
            "{name}: {generation} is older than the signal: {stderr}"
        );
        assert_eq!(manifests.to_string(), ranks, "{name}: {generation} is not whole");
        let number: u64 = generation.trim_start_matches("generation-").parse().unwrap();
        let mut second = job(&saves, &options, &words).spawn().unwrap();
        let mut lines = BufReader::new(second.stderr.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let from = format!("attempt 1 starts from generation {number},");
        assert!(lines.any(|line| line.contains(&from)), "{name}: {from}");
        // Before the launcher starts its ranks, the signal ends it at once.
        rig::await_true("does not run", || has_ranks(&saves));
        signal("INT", second.id());
        let _ = end(second);
    }
}

/// A time limit is known to the advisor, and SIGUSR1 says that it comes: both end with a save.
#[test]
fn a_time_limit_and_a_warning_lead_to_a_save() {
    let folder = TempDir::new().unwrap();
    let program = saving_ranks();
    let words = [program.as_str(), FOR_EVER, "advised"];
    let saves = folder.path().join("limit");
    let limited = job(&saves, &["-n", "2", "--timeout", "4"], &words)
        .spawn()
        .unwrap();
    let (code, stderr) = end(limited);
    assert_eq!(code, 75, "{stderr}");
    assert!(
        stderr.contains("took longer than 4 s and was ended; it has saved"),
        "{stderr}"
    );
    let saves = folder.path().join("warning");
    let mut warned = job(&saves, &["-n", "2"], &words).spawn().unwrap();
    await_save(&mut warned, &saves);
    let told = SystemTime::now();
    signal("USR1", warned.id());
    let (code, stderr) = end(warned);
    assert_eq!(code, 75, "{stderr}");
    assert!(newest(&saves).unwrap().1 >= told, "{stderr}");
}

/// Without an advisor SIGTERM ends a job within its grace and USR1 goes to the ranks.
#[test]
fn without_an_advisor_nothing_is_waited_for() {
    let start = |options: &[&str], script: &str| {
        let mut command = Command::new(ROPEWALK);
        command.arg("run").args(options).args(["sh", "-c", script]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut job = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(job.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        job
    };
    let loops = "echo ready; while :; do sleep 0.1; done";
    let deaf = start(&["--grace", "1"], &format!("trap '' TERM; {loops}"));
    let told = Instant::now();
    signal("TERM", deaf.id());
    let (code, stderr) = end(deaf);
    assert_eq!(code, 143, "{stderr}");
    let time = told.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(9)).contains(&time),
        "{time:?}"
    );
    let warned = start(&[], &format!("trap 'exit 7' USR1; {loops}"));
    signal("USR1", warned.id());
    assert_eq!(end(warned).0, 7);
}
