//! Checkpoints for programs in Python: the example is killed again and again, and ends as if nothing had been.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Output},
};

use ropewalk_checkpoint::{JournalFile, Record};
use tempfile::TempDir;

/// A program in Python that finds our module and library.
fn python(words: &[&str]) -> Output {
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    let output = Command::new("/usr/bin/python3")
        .args(words)
        .current_dir(bindings.join("examples"))
        .env("PYTHONPATH", bindings)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(
            "RW_CHECKPOINT_LIBRARY",
            env::current_exe().unwrap().with_file_name("librw_checkpoint.so"),
        )
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !text.contains("No module named 'numpy'"),
        "numpy is missing: install the Debian package python3-numpy"
    );
    output
}

/// The example that is killed at random moments gives, to the last bit, what the undisturbed one gives.
#[test]
fn a_killed_program_ends_as_if_nothing_had_been() {
    let folder = TempDir::new().unwrap();
    let [calm, killed] = ["calm", "killed"].map(|name| folder.path().join(name).display().to_string());
    let expected = python(&["heat.py", &calm, "20000"]);
    assert!(expected.status.success(), "{expected:?}");
    let mut kills = 0;
    let found = loop {
        let output = python(&["heat.py", &killed, "20000", "0.3"]);
        if output.status.signal() != Some(9) {
            break output;
        }
        kills += 1;
        assert!(kills < 500, "it gets nowhere");
    };
    assert!(found.status.success(), "{found:?}");
    assert_eq!(found.stdout, expected.stdout);
}

/// Errors are exceptions that say what the library says, and a save that fails is a warning.
#[test]
fn failures_are_exceptions() {
    let folder = TempDir::new().unwrap();
    let script = r#"
import sys, warnings
from ropewalk.checkpoint import Advisor, CheckpointError, Store, interval

assert abs(interval(0.6, 25) - 5.084745) < 1e-6
try:
    Store("/proc/nowhere")
    sys.exit("a store in /proc")
except CheckpointError as error:
    assert "/proc/nowhere" in str(error), error
with Store(sys.argv[1]) as store, Advisor() as advisor:
    assert store.restore() is None
    def fails(folder):
        (folder / "half").write_text("x")
        raise OSError("no more")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not advisor.save(store, 1, fails)
    assert "not saved: no more" in str(caught[0].message)
    assert advisor.save(store, 2, lambda folder: (folder / "whole").write_text("x"))
    decision = advisor.step_end()
    assert not decision and decision.reason == "not yet", decision
with Store(sys.argv[1]) as store:
    restored = store.restore()
    assert restored.step == 2 and (restored.folder / "whole").read_text() == "x"
"#;
    let output = python(&["-c", script, &folder.path().join("saves").display().to_string()]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// ^C and a planned exit are no failures in the journal, an error is one; a store without a directory says so.
#[test]
fn what_is_on_purpose_is_no_failure() {
    let folder = TempDir::new().unwrap();
    let script = r#"
import sys
from ropewalk.checkpoint import Advisor, Store

try:
    Store()
    sys.exit("a store nowhere")
except ValueError as error:
    assert "no directory was given" in str(error), error
kind = eval(sys.argv[2])
with Advisor(sys.argv[1]) as advisor:
    advisor.step_end()
    raise kind
"#;
    let failures = |kind: &str| {
        let journal = folder.path().join(kind.replace(['(', ')'], "-"));
        python(&["-c", script, &journal.display().to_string(), kind]);
        let (_, mut history) = JournalFile::open(&journal).unwrap();
        history.add(Record::Start { start: 1 });
        history.totals().failures
    };
    let kinds = [
        "KeyboardInterrupt()",
        "SystemExit()",
        "SystemExit(0)",
        "SystemExit(3)",
        "RuntimeError()",
    ];
    assert_eq!(kinds.map(failures), [0, 0, 0, 1, 1]);
}

/// Ranks save and restore together; numbers that the library would take for others are refused.
#[test]
fn ranks_save_together() {
    let folder = TempDir::new().unwrap();
    let script = r#"
import sys, threading
from ropewalk.checkpoint import Advisor, Store

folder = sys.argv[1]
RANKS = 3
def in_threads(work):
    results = [None] * RANKS
    stores = [Store(folder, rank=rank, ranks=RANKS) for rank in range(RANKS)]
    def run(rank):
        results[rank] = work(rank, stores[rank])
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    for store in stores: store.close()
    return results
def save(rank, store):
    assert store.restore("first") is None
    for step in (2**64 - 2, 2**64 - 1):
        # The last rank does not come to its second save.
        if rank < RANKS - 1 or step == 2**64 - 2:
            store.save(step, lambda folder: (folder / "rank").write_text(str(rank)))
    return True
assert all(in_threads(save))
def restore(rank, store):
    found = store.restore("second")
    return found.step, (found.folder / "rank").read_text()
found = in_threads(restore)
assert found == [(2**64 - 2, str(rank)) for rank in range(RANKS)], found

def refused(work):
    try:
        work()
    except ValueError as error:
        return str(error)
    sys.exit(f"{work} is not refused")
with Store(folder + "-alone") as store:
    for step in (-1, 2**64):
        text = refused(lambda: store.save(step, lambda folder: sys.exit("saved")))
        assert text == f"step has to be from 0 to 2**64 - 1, not {step}", text
    assert store.restore() is None
for wrong in ({"rank": -1}, {"rank": 1}, {"ranks": 2**32}, {"keep": -1}, {"restarts_max": -1}):
    refused(lambda: Store(folder, **wrong))
refused(lambda: Advisor(steps=-1))
with Store(folder, rank=1, ranks=RANKS) as store:
    assert "need a start" in refused(store.restore)
"#;
    let output = python(&["-c", script, &folder.path().join("saves").display().to_string()]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
