//! Programs that speak PMIx under `ropewalk run`, by Debian's libpmix.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Instant,
};

use tempfile::TempDir;

use rig::{PATIENCE, ROPEWALK, compile_mpi, libraries, text, write_script};

/// Compiles a program of `tests/pmix` with Debian's libpmix.
fn compile(source: &str, folder: &Path) -> PathBuf {
    let program = folder.join(source).with_extension("");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pmix");
    let words = Command::new("pkg-config")
        .args(["--cflags", "--libs", "pmix"])
        .output()
        .unwrap();
    let words = text(&words.stdout);
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(sources.join(source))
        .args(words.split_whitespace())
        .status();
    let missing = "cc or libpmix is missing: install the Debian packages gcc, pkg-config and libpmix-dev";
    assert!(compiled.unwrap().success(), "{missing}");
    program
}

fn run(words: &[&str], program: &[&Path]) -> Output {
    let mut command = assert_cmd::Command::new(ROPEWALK);
    command.env("ROPEWALK_LIBRARY_DIR", libraries());
    command.arg("run").args(words).args(program).timeout(PATIENCE);
    command.output().unwrap()
}

fn hosts(count: usize) -> String {
    let names: Vec<_> = (0..count).map(|host| format!("host{host}")).collect();
    names.join(",")
}

/// Ranks of one to three hosts find each other, by data that a fence collects, by data that is asked for, and by
/// names.
#[test]
fn ranks_find_each_other() {
    let folder = TempDir::new().unwrap();
    let program = compile("job.c", folder.path());
    for (hosts_count, ranks) in [(1, 1), (1, 4), (1, 64), (2, 4), (3, 4), (3, 64)] {
        let (hosts, count) = (hosts(hosts_count), ranks.to_string());
        let words = ["-launcher", "fork", "-hosts", &hosts, "-n", &count];
        let output = run(&words, &[&program]);
        assert!(output.status.success(), "{hosts_count} {ranks}: {output:?}");
        let found = text(&output.stdout);
        for rank in 0..ranks {
            let next = (rank + 1) % ranks;
            let sum = (0..ranks).map(|rank| 100 + rank).sum::<usize>() + 1000 + next;
            let line = format!("rank {rank} of {ranks}: sum {sum}, port of {next} port");
            assert!(found.lines().any(|found| found == line), "no {line:?} in {found}");
        }
    }
}

/// Groups that ranks of one to three hosts construct have a number that all their members know and no other group has.
#[test]
fn groups_have_numbers() {
    let folder = TempDir::new().unwrap();
    let program = compile("groups.c", folder.path());
    for (hosts_count, ranks) in [(1, 4), (2, 4), (3, 8)] {
        let (hosts, count) = (hosts(hosts_count), ranks.to_string());
        let words = ["-launcher", "fork", "-hosts", &hosts, "-n", &count];
        let output = run(&words, &[&program]);
        assert!(output.status.success(), "{hosts_count} {ranks}: {output:?}");
        let said = text(&output.stdout);
        let numbers = |group: &str| -> Vec<u64> {
            let words = said.lines().filter_map(|line| line.strip_prefix(group));
            words.map(|number| number.trim().parse().unwrap()).collect()
        };
        let groups = [("first", ranks), ("even", ranks / 2), ("second", ranks)].map(|(group, members)| {
            let mut found = numbers(group);
            assert_eq!(found.len(), members, "{said}");
            found.dedup();
            assert_eq!(found.len(), 1, "{said}");
            found[0]
        });
        let unique: BTreeSet<_> = groups.iter().filter(|number| **number != 0).collect();
        assert_eq!(unique.len(), 3, "{said}");
    }
}

/// Texts that ranks of one or two hosts log come out on the job's own streams, with their labels. Another channel is an
/// error.
#[test]
fn logs_come_out_with_labels() {
    let folder = TempDir::new().unwrap();
    let program = compile("logs.c", folder.path());
    for hosts in ["a", "a,b"] {
        let words = ["-launcher", "fork", "-hosts", hosts, "-n", "2", "-l"];
        let output = run(&words, &[&program]);
        assert!(output.status.success(), "{hosts}: {output:?}");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        for rank in 0..2 {
            for line in ["two", "lines", "streams: SUCCESS", "once: SUCCESS"] {
                let line = format!("[{rank}] {line}");
                assert!(
                    stdout.lines().any(|found| found == line),
                    "no {line:?} in {stdout}"
                );
            }
            for channels in ["syslog", "both"] {
                let line = format!("[{rank}] {channels}: ");
                let found = stdout.lines().find_map(|found| found.strip_prefix(&line));
                assert!(found.is_some_and(|status| status != "SUCCESS"), "{stdout}");
            }
            let line = format!("[{rank}] no end");
            let count = stderr.lines().filter(|found| **found == line).count();
            assert_eq!(count, 3, "{stderr}");
        }
    }
}

/// Ranks of one or two hosts learn which process groups there are, how large theirs is, and which processes of it run
/// on their host and on all.
#[test]
fn queries_are_answered() {
    let folder = TempDir::new().unwrap();
    let program = compile("queries.c", folder.path());
    for (hosts, rows) in [("a", 4), ("a,b", 2)] {
        let words = ["-launcher", "fork", "-hosts", hosts, "-n", "4", "-l"];
        let output = run(&words, &[&program]);
        assert!(output.status.success(), "{hosts}: {output:?}");
        let said = text(&output.stdout);
        for rank in 0..4 {
            let own: Vec<_> = said
                .lines()
                .filter_map(|line| line.strip_prefix(&format!("[{rank}] ")))
                .collect();
            let rows = format!("rows: {rows}");
            let known = ["groups: own", "size: 4", "row: right connected", rows.as_str()];
            assert_eq!(own[..4.min(own.len())], known, "{said}");
            let processes = own.get(4..8).unwrap_or_default();
            for (process, line) in processes.iter().enumerate() {
                let host = match (hosts, process) {
                    ("a,b", 1 | 3) => "b",
                    _ => "",
                };
                let expected = [format!("process {process}: "), format!("{host} runs")];
                assert!(
                    line.starts_with(&expected[0]) && line.ends_with(&expected[1]),
                    "{said}"
                );
            }
            assert_eq!(processes.len(), 4, "{said}");
            let unknown = own.get(8).unwrap_or(&"");
            assert!(
                unknown.starts_with("unknown: ") && !unknown.contains("SUCCESS"),
                "{said}"
            );
        }
    }
}

/// Ranks of one to three hosts that registered for it hear which rank was killed, and go on.
#[test]
fn survivors_hear_of_a_lost_rank() {
    let folder = TempDir::new().unwrap();
    let program = compile("events.c", folder.path());
    for hosts_count in 1..=3 {
        let hosts = hosts(hosts_count);
        let words = ["-launcher", "fork", "-hosts", &hosts, "-n", "3"];
        let output = run(&[&words[..], &["--on-failure", "continue"]].concat(), &[&program]);
        let stdout = text(&output.stdout);
        let said: BTreeSet<_> = stdout.lines().collect();
        let expected = BTreeSet::from(["rank 0 heard of 2", "rank 1 heard of 2"]);
        assert_eq!(said, expected, "{hosts_count} hosts: {output:?}");
    }
}

/// Processes of two groups on one or two hosts connect and disconnect, more than once; a name that is unpublished is
/// not found.
#[test]
fn groups_connect_and_disconnect() {
    let folder = TempDir::new().unwrap();
    let program = compile("connections.c", folder.path());
    for hosts in ["a", "a,b"] {
        let output = run(&["-launcher", "fork", "-hosts", hosts, "-n", "1"], &[&program]);
        assert!(output.status.success(), "{hosts}: {output:?}");
        let expected = "published: SUCCESS\nunpublished: NOT-FOUND\n";
        assert_eq!(text(&output.stdout), expected, "{hosts}: {output:?}");
    }
}

/// `PMIx_Abort` is a verdict with its code and its words, whichever host it comes from.
#[test]
fn an_abort_ends_the_job() {
    let folder = TempDir::new().unwrap();
    let program = compile("job.c", folder.path());
    let words = ["-launcher", "fork", "-hosts", "a,b", "-n", "2"];
    let output = run(&words, &[&program, Path::new("abort")]);
    assert_eq!(output.status.code(), Some(42), "{output:?}");
    let verdict = text(&output.stderr);
    assert!(
        verdict.contains("rank 1 on host b aborted the job with exit code 42 (it was asked to)"),
        "{verdict}"
    );
}

/// A program of Debian's Open MPI is served by PMIx, without the variables of Flux, and by PMI if the user wants
/// that.
#[test]
fn open_mpi_is_served_by_either() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.openmpi", "ring.c", folder.path());
    for choice in ["auto", "pmix", "pmi2"] {
        let output = run(&["-n", "3", "--pmi", choice], &[&program]);
        assert!(output.status.success(), "{choice}: {output:?}");
        assert!(
            text(&output.stdout).contains("rank 2 of 3: sum 6"),
            "{choice}: {output:?}"
        );
        assert_eq!(text(&output.stderr), "", "{choice}");
    }
    for (choice, flux, pmix) in [("auto", false, true), ("pmi2", true, false)] {
        let output = run(&["-n", "2", "--pmi", choice], &[Path::new("/usr/bin/env")]);
        let variables = text(&output.stdout);
        assert_eq!(variables.contains("FLUX_JOB_ID="), flux, "{choice}: {variables}");
        assert_eq!(
            variables.contains("PMIX_NAMESPACE="),
            pmix,
            "{choice}: {variables}"
        );
    }
}

/// A rank may itself start Open MPI's launcher.
#[test]
fn a_rank_may_start_mpirun() {
    let folder = TempDir::new().unwrap();
    let program = compile_mpi("mpicc.openmpi", "ring.c", folder.path());
    let script = folder.path().join("script");
    let words = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2";
    write_script(&script, &format!("#!/bin/sh\n{words} {}\n", program.display()));
    let output = run(&["-n", "1"], &[&script]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stdout).contains("rank 1 of 2: sum 3"), "{output:?}");
}

/// Wrapper scripts find the variables of Open MPI's launcher, of their own rank and not of an outer one. A nested
/// mpirun, programs of MPICH and of PMIx find each other all the same, and nothing says that mpirun had started the
/// ranks.
#[test]
fn wrapper_scripts_find_open_mpis_variables() {
    let names = "$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE \
        $OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE $OMPI_COMM_WORLD_NODE_RANK";
    let echo = format!("echo {names} [$OMPI_MCA_orte_hnp_uri]");
    let mut command = assert_cmd::Command::new(ROPEWALK);
    command
        .args([
            "run",
            "-launcher",
            "fork",
            "-hosts",
            "a:2,b:2",
            "-n",
            "3",
            "sh",
            "-c",
            &echo,
        ])
        .env("OMPI_COMM_WORLD_RANK", "77")
        .env("OMPI_COMM_WORLD_NODE_RANK", "77")
        .env("OMPI_MCA_orte_hnp_uri", "outer")
        .timeout(PATIENCE);
    let output = command.output().unwrap();
    let stdout = text(&output.stdout);
    let lines: BTreeSet<_> = stdout.lines().collect();
    assert_eq!(
        lines,
        BTreeSet::from(["0/3 0/2 0 []", "1/3 1/2 1 []", "2/3 0/1 0 []"]),
        "{output:?}"
    );

    let folder = TempDir::new().unwrap();
    let nested = folder.path().join("nested");
    let words = "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 sh -c";
    write_script(&nested, &format!("#!/bin/sh\n{words} 'echo {names}'\n"));
    let output = run(&["-n", "1"], &[&nested]);
    let stdout = text(&output.stdout);
    let lines: BTreeSet<_> = stdout.lines().collect();
    assert_eq!(lines, BTreeSet::from(["0/2 0/2 0", "1/2 1/2 1"]), "{output:?}");

    let of_mpich = compile_mpi("mpicc.mpich", "ring.c", folder.path());
    assert!(text(&run(&["-n", "3"], &[&of_mpich]).stdout).contains("rank 2 of 3: sum 6"));
    let of_pmix = compile("job.c", folder.path());
    let output = run(&["-n", "3"], &[&of_pmix]);
    assert!(output.status.success(), "{output:?}");
}

/// A rank that needs the others and never asks for them is named; one of a program that needs nobody is not.
#[test]
fn silent_ranks_are_named() {
    let folder = TempDir::new().unwrap();
    let source = folder.path().join("silent.c");
    fs::write(
        &source,
        "#include <pmix.h>\nint main(int n, char **w) { return n > 9 && PMIx_Initialized(); }",
    )
    .unwrap();
    let program = compile(&source.to_string_lossy(), folder.path());
    let output = run(&["-n", "2"], &[&program]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("rank 1: is linked with PMIx") && said.contains("never asked its launcher"),
        "{said}"
    );
    assert_eq!(text(&run(&["-n", "2"], &[Path::new("/bin/true")]).stderr), "");
}

/// A program of Open MPI that initialises after so many seconds, or never if it is `never`, and a script that runs it
/// with the sign of a launcher or without: then Open MPI is a job of one rank.
fn slow_script(folder: &Path, sleeps: &str, keeps_sign: bool) -> PathBuf {
    let (script, program) = (folder.join("script"), folder.join("slow"));
    let slow = folder.join("slow.c");
    fs::write(
        &slow,
        "#include <mpi.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         int main(int n, char **w) {\n\
         if (*w[1] == 'n') { usleep(1500000); return n > 9 && MPI_Init(&n, &w); }\n\
         usleep(1e6 * atof(w[1])); MPI_Init(&n, &w); usleep(2500000); return MPI_Finalize(); }",
    )
    .unwrap();
    let compiled = Command::new("mpicc.openmpi")
        .arg(&slow)
        .arg("-o")
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success());
    let before = if keeps_sign { "" } else { "unset JSM_JSRUN_PORT; " };
    write_script(
        &script,
        &format!("#!/bin/sh\n{before}{} {sleeps}; exit\n", program.display()),
    );
    script
}

/// Ranks of a script that are jobs of one rank are named once, while they run, and fail the job with their end.
#[test]
fn singletons_are_named_while_they_run() {
    let folder = TempDir::new().unwrap();
    let script = slow_script(folder.path(), "0.2", false);
    let begun = Instant::now();
    let mut command = rig::run(&["-n", "2"]);
    let mut job = command.arg(&script).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(
        job.try_wait().unwrap().is_none(),
        "it still runs after {:?}",
        begun.elapsed()
    );
    assert!(
        first.contains(": runs as a job of one rank: MPI_Init of Open MPI"),
        "{first}"
    );
    let others: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(job.wait().unwrap().code(), Some(125));
    assert!(
        others.len() == 1 && others[0].contains("the ranks did not work together"),
        "{others:?}"
    );
}

/// Nobody takes ranks for jobs of one rank that initialise MPI after five seconds and find each other, and those that
/// are linked with it and never initialise it are named at their end only.
#[test]
fn slow_and_idle_ranks_are_no_singletons() {
    let folder = TempDir::new().unwrap();
    let output = run(&["-n", "2"], &[&slow_script(folder.path(), "5", true)]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "");
    let output = run(&["-n", "2"], &[&slow_script(folder.path(), "never", true)]);
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert!(!said.contains("job of one rank: MPI_Init"), "{said}");
    assert!(said.contains("rank 1: is linked with Open MPI"), "{said}");
}

/// Ranks of another launcher that is itself a rank are its own affair.
#[test]
fn ranks_of_a_nested_launcher_are_no_singletons() {
    let folder = TempDir::new().unwrap();
    let script = slow_script(folder.path(), "0.2", true);
    let program = folder.path().join("slow");
    let words = format!(
        "exec mpirun.openmpi --oversubscribe -n 2 {} 0.2",
        program.display()
    );
    write_script(&script, &format!("#!/bin/sh\n{words}\n"));
    let mut command = rig::run(&["-n", "2"]);
    command.arg(&script);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = rig::output(command);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

/// A helper that dies ends the job with a verdict that says so.
#[test]
fn a_lost_helper_is_a_verdict() {
    let folder = TempDir::new().unwrap();
    let program = compile("job.c", folder.path());
    let script = folder.path().join("script");
    // The helper is the only other child of the rank's parent that has this variable.
    let text_of_script = format!(
        "#!/bin/sh\nfor pid in $(cat /proc/$PPID/task/$PPID/children); do\n  \
         grep -qa ROPEWALK_PMIX_HELPER= /proc/$pid/environ && kill -9 $pid\ndone\nsleep 9\nexec {}\n",
        program.display()
    );
    write_script(&script, &text_of_script);
    let output = run(&["-n", "2"], &[&script]);
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let verdict = text(&output.stderr);
    assert!(
        verdict.contains("the PMIx server of its host was killed by signal 9"),
        "{verdict}"
    );
}

/// Known programs of PMIx are refused where libpmix may not serve them, and told what to install or leave out.
#[test]
fn known_programs_are_refused_without_pmix() {
    let folder = TempDir::new().unwrap();
    let program = compile("job.c", folder.path());
    let output = run(&["-n", "2", "--pmi", "pmi2"], &[&program]);
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(text(&output.stderr).contains("linked with PMIx"), "{output:?}");
}
