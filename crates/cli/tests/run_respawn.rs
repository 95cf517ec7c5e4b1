//! `ropewalk run --on-failure respawn`, `--inject-mtbf` and `--stall`, with real processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{env, path::Path, process::Command};

use tempfile::TempDir;

const HOSTS: [&[&str]; 2] = [
    &[],
    &["-arity", "1", "-launcher", "fork", "-hosts", "alpha,beta,gamma"],
];

fn run(options: &[&str], words: &[&str]) -> (Option<i32>, String, String) {
    rig::told(rig::run(&[options, words].concat()))
}

/// A rank that dies gets another process, which knows that it is the second; the others go on meanwhile, the job goes
/// well, and the verdict tells what happened. On one host and in a tree of them, whichever rank it is.
#[test]
fn a_rank_is_started_again() {
    for hosts in HOSTS {
        for victim in 0..3 {
            let script = format!(
                "echo $RANK.$ROPEWALK_INCARNATION; \
                 if [ $RANK.$ROPEWALK_INCARNATION = {victim}.0 ]; then printf last; kill -9 $$; fi"
            );
            let words = ["-n", "3", "--on-failure", "respawn", "sh", "-c", &script];
            let (code, stdout, stderr) = run(hosts, &words);
            assert_eq!(code, Some(0), "{stderr}");
            for rank in 0..3 {
                assert!(stdout.contains(&format!("{rank}.0\n")), "{stdout}");
                assert_eq!(
                    stdout.contains(&format!("{rank}.1\n")),
                    rank == victim,
                    "{stdout}"
                );
            }
            assert!(stdout.contains("last"), "{stdout}");
            let last = stderr.lines().last().unwrap();
            assert!(last.contains(&format!("rank {victim} on host ")), "{stderr}");
            assert!(last.ends_with("; it was started again"), "{stderr}");
        }
    }
}

/// A rank that fails each time ends the job, with its exit code, once it was started again as often as allowed.
#[test]
fn not_for_ever() {
    let words = [
        "-n",
        "2",
        "--on-failure",
        "respawn=2",
        "sh",
        "-c",
        "if [ $RANK = 1 ]; then exit 5; fi; sleep 60",
    ];
    let (code, _, stderr) = run(&[], &words);
    assert_eq!(code, Some(5), "{stderr}");
    assert_eq!(stderr.matches("; it was started again\n").count(), 2, "{stderr}");
    assert!(stderr.ends_with("; the job was ended\n"), "{stderr}");
}

/// The fence of the survivors fails while the rank is gone and holds once it is back: nobody hangs, and what the new
/// process puts is got by all.
#[test]
fn survivors_meet_the_new_process() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("respawn");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = env::current_exe().unwrap().with_file_name("libpmi2.so");
    std::os::unix::fs::symlink(&built, folder.path().join("libpmi2.so.0")).unwrap();
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(here.join("tests/spawn_c/respawn.c"))
        .arg(format!("-I{}", here.join("../pmi2-c/include").display()))
        .arg(&built)
        .arg(format!("-Wl,-rpath,{}", folder.path().display()))
        .status();
    assert!(compiled.unwrap().success());
    for hosts in HOSTS {
        let words = ["-n", "3", "--on-failure", "respawn", program.to_str().unwrap()];
        let (code, stdout, stderr) = run(hosts, &words);
        assert_eq!(code, Some(0), "{stdout} {stderr}");
        for rank in 0..3 {
            assert!(stdout.contains(&format!("rank {rank} got 1")), "{stdout}");
        }
    }
}

/// Ranks are killed on purpose, which is told when it happens and counted in the end; equal seeds kill equally.
#[test]
fn failures_are_injected() {
    // With this seed one rank is killed after a fifth of a second and the next not within a minute.
    let words = ["-n", "4", "--inject-mtbf", "20", "--seed", "18706", "sleep", "60"];
    let killed: Vec<_> = (0..2)
        .map(|_| {
            let (code, _, stderr) = run(&[], &words);
            assert_eq!(code, Some(137), "{stderr}");
            assert!(
                stderr.ends_with("ropewalk: 1 rank was killed on purpose\n"),
                "{stderr}"
            );
            stderr.lines().next().unwrap().to_owned()
        })
        .collect();
    assert!(killed[0].ends_with(" is killed on purpose"), "{killed:?}");
    assert_eq!(killed[0], killed[1]);
}

/// A job in which nothing happens is ended and told about; one that writes is not.
#[test]
fn a_stall_is_a_failure() {
    let (code, _, stderr) = run(&[], &["-n", "2", "--stall", "0.5", "sleep", "60"]);
    assert_eq!(code, Some(124), "{stderr}");
    assert!(stderr.contains("no rank did anything for 0.5 s"), "{stderr}");
    assert!(stderr.contains("ranks 0-1 run"), "{stderr}");
    let writes = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.5; done";
    let (code, _, stderr) = run(&[], &["--stall", "3", "sh", "-c", writes]);
    assert_eq!(code, Some(0), "{stderr}");
}
