//! Options of `ropewalk run` and its variables, as users give them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Output,
};

use rig::{PATIENCE, text};

fn run(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = rig::run(words);
    command.envs(variables.iter().copied());
    rig::output(command)
}

/// The output of each rank goes to files of its own, standard error to others, and nothing to the launcher's.
#[test]
fn output_goes_to_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let script = "echo out$RANK; echo more; echo err$RANK >&2";
    let (out, err) = (path("out.%r"), path("err.%r"));
    let words = ["-outfile-pattern", &out, "-errfile-pattern", &err];
    let output = run(&[&words[..], &["-n", "2", "sh", "-c", script]].concat(), &[]);
    assert!(output.status.success());
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    for rank in 0..2 {
        let read = |name: &str| fs::read_to_string(path(&format!("{name}.{rank}"))).unwrap();
        assert_eq!(read("out"), format!("out{rank}\nmore\n"));
        assert_eq!(read("err"), format!("err{rank}\n"));
    }
}

/// With `--log json` every line on standard error but the verdict's is an object that names an event, its time, and the
/// job, which is the same in all of them. The end of a rank has its process and its exit code, or the signal.
#[test]
fn events_are_told_as_json() {
    let output = run(
        &[
            "--log",
            "json",
            "-disable-auto-cleanup",
            "-n",
            "3",
            "sh",
            "-c",
            "[ $RANK = 2 ] && kill -9 $$; exit $((3 * RANK))",
        ],
        &[],
    );
    assert!(!output.status.success());
    let mut events = Vec::new();
    let (mut jobs, mut times, mut pids) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
    let stderr = text(&output.stderr);
    for line in stderr.lines().filter(|line| !line.starts_with("ropewalk: ")) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let event = object["event"].as_str().unwrap().to_owned();
        assert_eq!(object["version"], 1, "{line}");
        jobs.insert(object["job"].as_str().unwrap().to_owned());
        let time = object["time"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{line}");
        times.push(humantime::parse_rfc3339(time).unwrap());
        if event == "started" {
            pids.insert(object["rank"].as_u64().unwrap(), object["pid"].as_u64());
        }
        if event == "departed" {
            let rank = object["rank"].as_u64().unwrap();
            let (exit_code, signal) = [(Some(0), None), (Some(3), None), (None, Some(9))][rank as usize];
            assert_eq!(object["exit_code"].as_u64(), exit_code, "{line}");
            assert_eq!(object["signal"].as_u64(), signal, "{line}");
            assert_eq!(object["pid"].as_u64(), pids[&rank], "{line}");
            assert!(!object["host"].as_str().unwrap().is_empty(), "{line}");
        }
        if event == "finished" {
            assert_eq!(object["exit_code"].as_i64(), output.status.code().map(i64::from));
        }
        events.push(event);
    }
    assert_eq!(events.first().map(String::as_str), Some("host_ready"), "{stderr}");
    assert_eq!(events.last().map(String::as_str), Some("finished"), "{stderr}");
    assert!(jobs.len() == 1 && jobs.first().unwrap().len() == 32, "{jobs:?}");
    let passed = times[0].elapsed().unwrap();
    assert!(times.is_sorted() && passed < PATIENCE, "{times:?}");
    for (event, count) in [("started", 3), ("departed", 3)] {
        assert_eq!(
            events.iter().filter(|one| *one == event).count(),
            count,
            "{stderr}"
        );
    }
}

/// How all ranks ended is told on request, and with `-verbose` when each began.
#[test]
fn ends_are_told_on_request() {
    let words = [
        "-print-all-exitcodes",
        "-verbose",
        "-disable-auto-cleanup",
        "-n",
        "2",
    ];
    let output = run(&[&words[..], &["sh", "-c", "exit $((3 * RANK))"]].concat(), &[]);
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains("how the ranks ended: 0: exited with code 0; 1: exited with code 3"),
        "{stderr}"
    );
    assert_eq!(stderr.matches(" runs, pid ").count(), 2, "{stderr}");
    assert_eq!(output.status.code(), Some(3));
}

/// Hydra's variable for the time limit is one.
#[test]
fn a_variable_limits_the_time() {
    let output = run(&["sleep", "60"], &[("MPIEXEC_TIMEOUT", "1")]);
    assert_eq!(output.status.code(), Some(124), "{output:?}");
}

/// Ranks get of the environment what they are to get: nothing of it, or what is named.
#[test]
fn the_environment_is_as_wanted() {
    let variables = [("FIRST", "1"), ("SECOND", "2")];
    let script = "echo [$FIRST$SECOND]";
    for (option, expected) in [
        (&["-genvall"][..], "[12]\n"),
        (&["-genvnone"], "[]\n"),
        (&["-genvlist", "SECOND"], "[2]\n"),
    ] {
        let words = [option, &["/bin/sh", "-c", script]].concat();
        let output = run(&words, &variables);
        assert_eq!(text(&output.stdout), expected, "{option:?} {output:?}");
    }
}

/// `-map-by` says in which order the slots of the hosts are filled.
#[test]
fn ranks_are_mapped() {
    let like_rsh = tempfile::Builder::new().suffix(".sh").tempfile().unwrap();
    fs::write(like_rsh.path(), "shift\nexec \"$@\"\n").unwrap();
    let command = format!("sh {}", like_rsh.path().display());
    for (order, expected) in [
        ("slot", "0 h1\n1 h1\n2 h2\n3 h2\n"),
        ("node", "0 h1\n1 h2\n2 h1\n3 h2\n"),
    ] {
        let words = [
            "-launcher-exec",
            &command,
            "-iface",
            "127.0.0.1",
            "-hosts",
            "h1:2,h2:2",
        ];
        let more = ["-map-by", order, "-prepend-pattern", "%r ", "-n", "4"];
        let script = ["sh", "-c", "echo $MPIR_CVAR_CH3_INTERFACE_HOSTNAME"];
        let output = run(&[&words[..], &more, &script].concat(), &[]);
        let stdout = text(&output.stdout);
        let mut lines: Vec<_> = stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines.join("\n") + "\n", expected, "{output:?}");
    }
}
