//! Checkpoints for programs in C: the example is built as a user would, killed again and again, and ends as if nothing
//! had been.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output},
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
