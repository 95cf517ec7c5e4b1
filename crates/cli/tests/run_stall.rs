//! `ropewalk run --stall`, with real programs, of MPI too: ranks that wait for each other for ever spin, and
//! make no progress.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use tempfile::TempDir;

use rig::compile_mpi;

const COMPILERS: [&str; 2] = ["mpicc.mpich", "mpicc.openmpi"];
const HOSTS: [&[&str]; 2] = [&[], &["-launcher", "fork", "-hosts", "alpha:1,beta:1"]];

/// Runs two ranks. Returns the exit code and what the command says. A job that hangs ends with exit code 143.
fn run(hosts: &[&str], options: &[&str], words: &[&str]) -> (Option<i32>, String) {
    let mut command = rig::run(&[&["-n", "2"], hosts, options, words].concat());
    // For Open MPI.
    command.env("ROPEWALK_LIBRARY_DIR", rig::libraries());
    let (code, _, stderr) = rig::told(command);
    (code, stderr)
}

/// Two ranks that each wait for a message that the other never sends are ended and named, on one host and on
/// two, although they take all the processor time that they get.
#[test]
fn ranks_that_spin_make_no_progress() {
    let folder = TempDir::new().unwrap();
    for compiler in COMPILERS {
        let program = compile_mpi(compiler, "stall.c", folder.path());
        for hosts in HOSTS {
            let (code, stderr) = run(hosts, &["--stall", "3s"], &[program.to_str().unwrap(), "receive"]);
            assert_eq!(code, Some(124), "{compiler} {hosts:?}: {stderr}");
            assert!(stderr.contains("no rank did anything for 3 s"), "{stderr}");
            assert!(stderr.contains("ranks 0-1 run"), "{stderr}");
        }
    }
}

/// So are they without MPICH's shared memory, over TCP, where messages that move now and then count, with nothing else.
#[test]
fn messages_over_tcp_are_progress() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.mpich", "stall.c", folder.path());
    let program = program.to_str().unwrap();
    // On a busy machine UCX computes for seconds before the first byte moves.
    let options = ["--stall", "10s", "-genv", "UCX_TLS=tcp,self"];
    let (_, stderr) = run(HOSTS[1], &options, &[program, "send", "16"]);
    // On such a machine MPI_Finalize over UCX may hang afterwards: a rank that waits in the last fence answers no one.
    assert!(stderr.lines().any(|line| line == "sent"), "{stderr}");
    let (code, stderr) = run(HOSTS[1], &options, &[program, "receive"]);
    assert_eq!(code, Some(124), "{stderr}");
}

/// One that computes in silence is ended unless it is said that it does; one that writes files, or lines, is not.
#[test]
fn number_crunchers_say_so() {
    let computes = "timeout 9 sh -c 'while :; do :; done'; true";
    let (code, stderr) = run(&[], &["--stall", "3s"], &["sh", "-c", computes]);
    assert_eq!(code, Some(124), "{stderr}");
    let (code, stderr) = run(
        &[],
        &["--stall", "3s", "--stall-counts-cpu"],
        &["sh", "-c", computes],
    );
    assert_eq!(code, Some(0), "{stderr}");
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    for place in [format!(">>{}", file.display()), String::new()] {
        let script = format!("for i in 1 2 3 4 5 6 7 8 9; do echo $i {place}; read -t 1 line <&3; done");
        let script = format!("exec 3< <(exec sleep 100); {script}; exit 0");
        let (code, stderr) = run(&[], &["--stall", "3s"], &["bash", "-c", &script]);
        assert_eq!(code, Some(0), "{place}: {stderr}");
    }
}

/// When a rank is lost and the others go on, those of MPI wait for it for ever in their next barrier: the
/// loss is told with what comes of it, then a warning, and then the job is ended. With the default that takes
/// a minute from the loss on, which is told too; without the limit nothing is.
#[test]
fn survivors_that_wait_for_the_lost_are_ended() {
    let folder = TempDir::new().unwrap();
    for compiler in COMPILERS {
        let program = compile_mpi(compiler, "stall.c", folder.path());
        let words = [program.to_str().unwrap(), "lose"];
        let going = ["--on-failure", "continue"];
        let (code, stderr) = run(&[], &[&going[..], &["--stall", "3s"]].concat(), &words);
        assert_eq!(code, Some(124), "{compiler}: {stderr}");
        let mut lines = stderr.lines();
        let lost = lines.next().unwrap();
        assert!(
            lost.contains("rank 1 on host ") && lost.contains("was killed by signal 9"),
            "{stderr}"
        );
        let told = "; the others go on; the job ends in 3 s if nothing moves (--stall)";
        assert!(lost.ends_with(told), "{stderr}");
        let warned = lines.next().unwrap();
        assert!(
            warned.contains("no rank did anything for 1.5 s: rank 0 runs; "),
            "{stderr}"
        );
        let last = stderr.lines().last().unwrap();
        assert!(last.contains("no rank did anything for 3 s"), "{stderr}");

        let limit = ["--timeout", "3"];
        let (_, stderr) = run(&[], &[&going[..], &limit].concat(), &words);
        assert!(
            stderr.contains("the job ends in 60 s if nothing moves"),
            "{stderr}"
        );
        let never = [&going[..], &limit, &["--stall", "0"]].concat();
        let (_, stderr) = run(&[], &never, &words);
        assert!(!stderr.contains("--stall"), "{stderr}");
    }
}
