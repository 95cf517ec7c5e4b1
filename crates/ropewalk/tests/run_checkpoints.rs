//! `ropewalk run --on-failure restart --checkpoint DIR` with a program in C that is killed at random.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use ropewalk::checkpoint::JournalFile;
use tempfile::TempDir;

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");

/// About a second of computing.
const STEPS: &str = "60000";

/// The example of the C library, linked with the one that cargo has built.
fn heat(folder: &TempDir) -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name("librw_checkpoint.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint-c");
    std::os::unix::fs::symlink(&library, folder.path().join("librw_checkpoint.so.0")).unwrap();
    let program = folder.path().join("heat");
    let output = Command::new("cc")
        .args(["-O2", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(source.join("examples/heat.c"))
        .arg(format!("-I{}", source.join("include").display()))
        .arg(library)
        .arg(format!("-Wl,-rpath,{}", folder.path().display()))
        .arg("-lm")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    program
}

fn run(words: &[&str]) -> Output {
    Command::new(ROPEWALK)
        .arg("run")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// A program that is killed again and again comes to the end that it would have come to, from checkpoint to checkpoint;
/// the table and the page tell what that cost, and the journal counts each failure once.
#[test]
fn a_job_goes_on_from_its_checkpoints() {
    let folder = TempDir::new().unwrap();
    let program = heat(&folder).display().to_string();
    let [calm, killed, report] =
        ["calm", "killed", "report.html"].map(|name| folder.path().join(name).display().to_string());
    let expected = run(&[&program, &calm, STEPS]);
    assert!(expected.status.success(), "{expected:?}");
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
    let restarts = text.matches("the job is started again").count();
    let (_, history) = JournalFile::open(Path::new(&killed).join("journal")).unwrap();
    assert_eq!(history.totals().failures, restarts as u64, "{text}");
    assert_eq!(history.open_ran(), None, "the end is in the journal");
    if restarts > 0 {
        assert!(text.contains("starts from generation"), "{text}");
    }
    assert!(
        text.contains("measured overhead") && text.contains("fixed: every"),
        "{text}"
    );
    assert!(fs::read_to_string(report).unwrap().contains("<polyline"));
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
        "--mtbf",
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
