//! Unmodified MPICH programs under `ropewalk run`, beside MPICH's own launcher.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    path::Path,
    process::{Command, Output},
};

use tempfile::TempDir;

use rig::{compile_mpi, sorted_lines};

/// A program says the same under `ropewalk run` as under `mpiexec.hydra`, with 1, 2, 4 and 8 ranks.
#[test]
fn a_reduction_gives_what_it_gives_under_hydra() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.mpich", "reduce.c", folder.path());
    for ranks in [1, 2, 4, 8] {
        let ranks = ranks.to_string();
        let ours = ropewalk(&["-n", &ranks], &program);
        let theirs = hydra(&["-n", &ranks], &program);
        assert_eq!(ours.status.code(), Some(0), "{ours:?}");
        assert_eq!(sorted_lines(&ours), sorted_lines(&theirs), "with {ranks} ranks");
        assert!(ours.stderr.is_empty(), "{ours:?}");
    }
}

/// `MPI_Abort` ends the job with its exit code, and the verdict says who did it.
#[test]
fn an_abort_gives_the_exit_code() {
    let folder = TempDir::new().unwrap();
    let output = ropewalk(
        &["-n", "3"],
        &compile_mpi("mpicc.mpich", "abort.c", folder.path()),
    );
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("rank 1 on host"), "{text}");
    assert!(text.contains("aborted the job with exit code 42"), "{text}");
}

/// A rank that exits before `MPI_Init` does not leave the others waiting in theirs.
#[test]
fn a_rank_that_exits_early_keeps_nobody_waiting() {
    let folder = TempDir::new().unwrap();
    let output = ropewalk(
        &["-n", "3"],
        &compile_mpi("mpicc.mpich", "early_exit.c", folder.path()),
    );
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

/// "Hydra: `-usize SYSTEM` gives the core total, `-usize N` gives N, default answer was -1": MPI says how much room for
/// processes there is, as it does under `mpiexec.hydra`.
#[test]
fn the_universe_size_is_told() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.mpich", "universe.c", folder.path());
    for options in [
        &["-usize", "7"][..],
        &["-hosts", "localhost:3", "-usize", "SYSTEM"],
        &[],
    ] {
        let ours = ropewalk(options, &program);
        let theirs = hydra(options, &program);
        assert_eq!(ours.status.code(), Some(0), "{ours:?}");
        assert_eq!(sorted_lines(&ours), sorted_lines(&theirs), "{options:?}");
    }
}

/// However many ranks there are, none asks the process manager for more: what all want to know of all others is one
/// attribute of the job.
#[test]
fn ranks_of_large_jobs_ask_for_no_more() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.mpich", "ring.c", folder.path());
    let library = folder.path().join("count.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/count.c"))
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
    let preload = format!("LD_PRELOAD={}", library.display());
    let most = |ranks: usize| -> u32 {
        let output = ropewalk(&["-n", &ranks.to_string(), "-genv", &preload], &program);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let counts = text.lines().filter_map(|line| line.strip_prefix("requests "));
        let counts: Vec<u32> = counts.map(|count| count.parse().unwrap()).collect();
        assert_eq!(counts.len(), ranks, "{text}");
        counts.into_iter().max().unwrap()
    };
    let few = most(2);
    assert!((8..=16).contains(&few), "{few}");
    assert_eq!([most(4), most(8), most(16)], [few; 3]);
}

/// Ranks that connect to a port need no descriptor: a wrapper may close all of them.
#[test]
fn descriptors_may_be_closed_in_port_mode() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.mpich", "ring.c", folder.path());
    let wrapper = folder.path().join("wrapper");
    let words = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec";
    rig::write_script(&wrapper, &format!("#!/bin/sh\n{words} {}\n", program.display()));
    for hosts in ["a", "a,b"] {
        let words = ["-launcher", "fork", "-hosts", hosts, "-pmi-port", "-n", "3"];
        let output = ropewalk(&words, &wrapper);
        assert_eq!(output.status.code(), Some(0), "{hosts}: {output:?}");
        let last = "rank 2 of 3: sum 6".to_owned();
        assert!(sorted_lines(&output).contains(&last), "{hosts}: {output:?}");
    }
}

fn ropewalk(options: &[&str], program: &Path) -> Output {
    let mut command = rig::run(options);
    command.arg(program);
    rig::output(command)
}

fn hydra(options: &[&str], program: &Path) -> Output {
    let output = Command::new("mpiexec.hydra")
        .args(options)
        .arg(program)
        .output()
        .expect("mpiexec.hydra is missing: install the Debian packages mpich and libmpich-dev");
    assert!(output.status.success(), "{output:?}");
    output
}
