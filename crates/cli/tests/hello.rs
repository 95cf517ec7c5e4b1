//! The short examples do what their first lines say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use rig::{await_true, example, output, run_example, text};

/// A vector of each rank is added up, also that of the rank that crashes behind its call.
#[test]
fn a_sum_survives_a_crash() {
    let found = output(run_example("hello_reduce", 4, &[], &[]));
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert_eq!(text(&found.stdout), "sum 10 of 4 ranks\n");
}

/// Ranks that Open MPI's launcher has started without PMI do not each take themselves for the only one.
#[test]
fn a_launcher_without_pmi_is_named() {
    let mut command = Command::new("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
    command.arg(example("hello_reduce"));
    let found = output(command);
    assert!(!found.status.success(), "{found:?}");
    assert_eq!(text(&found.stdout), "", "{found:?}");
    // The launcher may end the other rank before it says so too.
    let named = "NoPmi { launcher: \"mpirun of Open MPI\", rank: Rank(";
    assert!(text(&found.stderr).contains(named), "{found:?}");
}

/// A procedure is called.
#[test]
fn a_procedure_answers() {
    let found = output(Command::new(example("hello_rpc")));
    assert_eq!(text(&found.stdout), "2 + 3 = 5\n", "{found:?}");
}

/// A loop that is killed continues behind a save, and ends with the result of one that is not.
#[test]
fn a_killed_loop_continues() {
    let folder = tempfile::tempdir().unwrap();
    let [calm, killed] = ["calm", "killed"].map(|name| folder.path().join(name));
    let expected = output(heat(&calm));
    let mut program = heat(&killed).stdout(Stdio::null()).spawn().unwrap();
    await_true("there is no save", || has_save(&killed));
    program.kill().unwrap();
    let code = program.wait().unwrap().code();
    assert_eq!(code, None, "it ends before it is killed");
    let found = output(heat(&killed));
    assert!(found.status.success(), "{found:?}");
    assert_eq!(last_line(&found), last_line(&expected));
    let steps = |output: &Output| text(&output.stdout).matches("step").count();
    assert!(steps(&found) < steps(&expected), "it begins anew: {found:?}");
}

fn heat(directory: &Path) -> Command {
    let mut command = Command::new(example("hello_checkpoint"));
    command.arg(directory).arg(STEPS);
    command
}

/// Says if a save is committed.
fn has_save(directory: &Path) -> bool {
    let mut generations = fs::read_dir(directory).into_iter().flatten().flatten();
    generations.any(|entry| entry.path().join("rank-00000.manifest").exists())
}

fn last_line(output: &Output) -> String {
    text(&output.stdout).lines().last().unwrap().to_owned()
}

/// Some seconds in a build for tests.
const STEPS: &str = "20000";
