//! Checkpoints for programs in C: the example is built as a user would, killed again and again, and ends as if nothing
//! had been.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// About a second of computing.
const STEPS: &str = "60000";

/// Where cargo put the library.
fn library() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().to_owned();
    folder.join("librw_checkpoint.so")
}

fn compiled(source: &Path, folder: &TempDir) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let soname = folder.path().join("librw_checkpoint.so.0");
    std::os::unix::fs::symlink(library(), soname).unwrap();
    let program = folder.path().join("program");
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(here.join(source))
        .arg(format!("-I{}", here.join("include").display()))
        .arg(library())
        .arg(format!("-Wl,-rpath,{}", folder.path().display()))
        .arg("-lm")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    program
}

fn heat(program: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).output().unwrap()
}

/// The example that is killed at random moments gives, to the last bit, what the undisturbed one gives, and keeps two
/// generations.
#[test]
fn a_killed_program_ends_as_if_nothing_had_been() {
    let folder = TempDir::new().unwrap();
    let program = compiled(Path::new("examples/heat.c"), &folder);
    let [calm, killed] = ["calm", "killed"].map(|name| folder.path().join(name).display().to_string());
    let expected = heat(&program, &[&calm, STEPS]);
    assert!(expected.status.success(), "{expected:?}");
    let mut kills = 0;
    let found = loop {
        let output = heat(&program, &[&killed, STEPS, "0.1"]);
        if output.status.signal() != Some(9) {
            break output;
        }
        kills += 1;
        assert!(kills < 1000, "it gets nowhere");
    };
    assert!(found.status.success(), "{found:?}");
    assert_eq!(found.stdout, expected.stdout);
    let generations = fs::read_dir(&killed).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("generation-")
    });
    // Several are expected.
    assert!(kills > 0);
    assert!(generations.count() <= 2);
}

/// A loop whose arrays have names is killed in 20 of its steps, and ends as if nothing had been; an array of another
/// length is refused.
#[test]
fn a_killed_loop_with_named_arrays_ends_as_if_nothing_had_been() {
    let folder = TempDir::new().unwrap();
    let program = compiled(Path::new("examples/named.c"), &folder);
    let [calm, killed] = ["calm", "killed"].map(|name| folder.path().join(name).display().to_string());
    let expected = heat(&program, &[&calm, STEPS]);
    assert!(expected.status.success(), "{expected:?}");
    for kill in 1..=20_u32 {
        let output = heat(&program, &[&killed, STEPS, &(kill * 200).to_string()]);
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
    }
    let found = heat(&program, &[&killed, STEPS]);
    assert!(found.status.success(), "{found:?}");
    assert_eq!(found.stdout, expected.stdout);
    let begun = String::from_utf8_lossy(&found.stderr).into_owned();
    let begun: u64 = begun.trim().trim_start_matches("from step ").parse().unwrap();
    assert!(begun > 0, "it was never restored");
    let other = TempDir::new().unwrap();
    let source = other.path().join("other.c");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/named.c")).unwrap();
    fs::write(&source, text.replace("CELLS 5000", "CELLS 4000")).unwrap();
    let refused = heat(&compiled(&source, &other), &[&killed, STEPS]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        told.contains("u was saved as float64 of 8 bytes, shape 5000, and this program has"),
        "{told}"
    );
}

/// A program that cannot write its files commits none of them, and comes to its end without.
#[test]
fn what_could_not_be_written_is_not_committed() {
    let folder = TempDir::new().unwrap();
    let program = compiled(Path::new("examples/heat.c"), &folder);
    let [calm, small] = ["calm", "small"].map(|name| folder.path().join(name));
    let heat = |directory: &Path, command: &mut Command| {
        let output = command
            .arg(&program)
            .args([directory.display().to_string(), "5000".to_owned()])
            // So that it saves soon.
            .env("ROPEWALK_MTBF", "0.01")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let names = fs::read_dir(directory).unwrap();
        let saved = names.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("generation-")
        });
        (output.stdout, output.stderr, saved.count())
    };
    let (expected, _, saved) = heat(&calm, &mut Command::new("env"));
    assert!(saved > 0, "it saves");
    // No file can be larger than some thousand bytes, as if the disk were full then.
    let script = "trap '' XFSZ; ulimit -f 32; exec \"$@\"";
    let (found, told, saved) = heat(&small, Command::new("sh").args(["-c", script, "sh"]));
    assert_eq!(found, expected);
    let text = String::from_utf8_lossy(&told);
    assert!(text.contains("heat: not saved: File too large"), "{text}");
    assert_eq!(saved, 0, "{text}");
}

/// The header and the examples are clean C99 and C++11, with every warning that is usual.
#[test]
fn header_and_examples_have_no_warnings() {
    let folder = TempDir::new().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compilers: [(&str, &[&str]); 2] = [
        ("gcc", &["-x", "c", "-std=c99", "-Wstrict-prototypes"]),
        ("g++", &["-x", "c++", "-std=c++11"]),
    ];
    let examples = ["examples/heat.c", "examples/named.c"];
    for ((compiler, words), example) in compilers
        .into_iter()
        .flat_map(|compiler| examples.map(|example| (compiler, example)))
    {
        let output = Command::new(compiler)
            .args(words)
            .args([
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-D_GNU_SOURCE",
                "-c",
                "-o",
            ])
            .arg(folder.path().join("heat.o"))
            .arg(format!("-I{}", here.join("include").display()))
            .arg(here.join(example))
            .output()
            .unwrap_or_else(|_| panic!("{compiler} is missing: install the Debian packages gcc and g++"));
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{compiler}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The header and the library name the same functions, so that none is missing from either.
#[test]
fn the_library_has_the_functions_of_its_header() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/rw_checkpoint.h");
    let header = fs::read_to_string(header).unwrap();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| {
            line.starts_with("int ") || line.starts_with("const char *") || line.starts_with("double ")
        })
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .collect();
    declared.sort_unstable();
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
    assert!(exported.len() >= 33, "{exported:?}");
}

/// A rank that adds 1 to its rows in each step, and prints the step from which it went on and its rows.
const ROWS: &str = r#"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "rw_checkpoint.h"

int main(int argc, char **argv)
{
    rw_run_options options = RW_RUN_OPTIONS;
    rw_run *run;
    uint64_t shape[2] = { 0, 2 }, steps, begun, step, i;
    double u[64] = { 0 };

    if (argc < 7)
        return 2;
    options.start = argv[2];
    options.rank = (uint32_t)atoi(argv[3]);
    options.ranks = (uint32_t)atoi(argv[4]);
    shape[0] = strtoull(argv[5], NULL, 10);
    steps = strtoull(argv[6], NULL, 10);
    for (i = 0; i < 2 * shape[0]; i++)
        u[i] = options.rank;
    if (rw_resume(argv[1], &options, &run)
        || rw_protect_partitioned(run, "point", u, RW_FLOAT64, sizeof *u, 0, NULL) != RW_CHECKPOINT_BAD_ARGUMENT
        || rw_protect_partitioned(run, "u", u, RW_FLOAT64, sizeof *u, 2, shape)
        || rw_restore(run, &begun)) {
        fprintf(stderr, "%s\n", rw_checkpoint_error());
        return 1;
    }
    while (rw_step(run, steps, &step) == RW_CHECKPOINT_OK && step < steps)
        for (i = 0; i < 2 * shape[0]; i++)
            u[i] += 1;
    printf("%" PRIu64 ":", begun);
    for (i = 0; i < shape[0]; i++)
        printf(" %g", u[2 * i + 1]);
    return rw_close(run, 1) != RW_CHECKPOINT_OK;
}
"#;

/// A partitioned array goes on with other ranks, and is refused if it has another number of rows.
#[test]
fn rows_go_on_with_other_ranks() {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("rows.c");
    fs::write(&source, ROWS).unwrap();
    let program = compiled(&source, &folder);
    let saves = folder.path().join("saves");
    let job = |start: &str, rows: &[u32], steps: u32| -> Vec<Output> {
        let ranks: Vec<_> = (0..rows.len())
            .map(|rank| {
                let mut command = Command::new(&program);
                command.arg(&saves).arg(start);
                command.args(
                    [rank, rows.len(), rows[rank] as usize, steps as usize].map(|word| word.to_string()),
                );
                command
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        ranks
            .into_iter()
            .map(|rank| rank.wait_with_output().unwrap())
            .collect()
    };
    let printed = |outputs: Vec<Output>| -> Vec<String> {
        outputs
            .into_iter()
            .map(|output| {
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stdout).unwrap()
            })
            .collect()
    };
    assert_eq!(printed(job("a", &[1, 3], 1)), ["0: 1", "0: 2 2 2"]);
    for output in job("b", &[1, 2], 2) {
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            told.contains("the save holds 4 rows of all ranks together"),
            "{told}"
        );
    }
    assert_eq!(printed(job("c", &[2, 0, 2], 2)), ["1: 2 3", "1:", "1: 3 3"]);
    assert_eq!(printed(job("d", &[4], 2)), ["2: 2 3 3 3"]);
}
