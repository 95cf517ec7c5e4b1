//! The words of Open MPI's mpirun, as jobs obey them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use rig::{ROPEWALK, sorted_lines, told, write_script};

/// The processors that this process may run on, as the kernel writes them.
fn own_processors() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    allowed(&status).to_owned()
}

fn allowed(status: &str) -> &str {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"))
        .unwrap()
}

/// Those of a list as the kernel writes it.
fn processors(list: &str) -> Vec<u32> {
    let ranges = list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    });
    ranges.collect()
}

/// The sockets of some processors, by the kernel.
fn sockets(processors: &[u32]) -> BTreeSet<String> {
    let socket = |number: &u32| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/physical_package_id");
        fs::read_to_string(path).unwrap_or_default()
    };
    processors.iter().map(socket).collect()
}

const RANK_AND_PROCESSORS: &str = "printf '%04d ' $RANK; grep Cpus_allowed_list /proc/self/status | cut -f2";

/// `--npersocket` and its longer form start so many ranks for each socket of each host, one socket after the other,
/// each rank bound to its socket or to a core of it.
#[test]
fn ranks_are_counted_by_sockets() {
    let own = processors(&own_processors());
    let of_host = sockets(&own).len();
    for words in [
        &["--npersocket", "2"][..],
        &["--map-by", "ppr:2:socket:OVERSUBSCRIBE"],
        &["--map-by", "ppr:2:socket", "--bind-to", "core"],
    ] {
        let program = ["sh", "-c", RANK_AND_PROCESSORS];
        let output = rig::output(rig::run(&[words, &program[..]].concat()));
        let lines = sorted_lines(&output);
        assert_eq!(lines.len(), 2 * of_host, "{words:?}: {output:?}");
        let bound: Vec<_> = lines.iter().map(|line| processors(&line[5..])).collect();
        for pair in bound.chunks(2) {
            assert_eq!(sockets(&pair[0]).len(), 1, "{words:?}: {bound:?}");
            assert_eq!(sockets(&pair[0]), sockets(&pair[1]), "{words:?}: {bound:?}");
        }
        let all = bound.iter().map(|processors| sockets(processors));
        assert_eq!(
            all.collect::<BTreeSet<_>>().len(),
            of_host,
            "{words:?}: {bound:?}"
        );
    }
    let hosts = ["-launcher", "fork", "-hosts", "a,b", "--npersocket", "1"];
    let words = [&hosts[..], &["sh", "-c", "echo $RANK $PMI_HOSTNAME"]].concat();
    let output = rig::output(rig::run(&words));
    let host = |rank| if rank < of_host { "a" } else { "b" };
    let expected = (0..2 * of_host).map(|rank| format!("{rank} {}", host(rank)));
    let mut expected: Vec<_> = expected.collect();
    expected.sort_unstable();
    assert_eq!(sorted_lines(&output), expected);
}

/// Where ranks were counted by parts of the launcher's host, a host with another number of them starts none, and the
/// error says what to do.
#[test]
fn a_host_with_other_parts_is_refused() {
    let own = own_processors();
    let last = processors(&own).pop().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let command = folder.path().join("with-all-processors");
    write_script(
        &command,
        &format!("#!/bin/sh\nshift\nexec taskset -c {own} \"$@\"\n"),
    );
    let mut run = Command::new("taskset");
    run.args(["-c", &last.to_string(), ROPEWALK, "run", "-launcher-exec"])
        .arg(command)
        .args([
            "-iface",
            "127.0.0.1",
            "-hosts",
            "other",
            "--map-by",
            "ppr:1:hwthread",
        ])
        .args(["echo", "ran"])
        .stdin(Stdio::null());
    let (code, stdout, stderr) = told(run);
    if processors(&own).len() == 1 {
        assert_eq!(
            (code, &stdout[..]),
            (Some(0), "ran\n"),
            "all hosts are alike: {stderr}"
        );
        return;
    }
    assert_eq!((code, &stdout[..]), (Some(125), ""), "{stderr}");
    assert!(
        stderr.contains("-ppn how many ranks run on each host"),
        "{stderr}"
    );
}

/// `--rank-by` numbers the ranks of two hosts in turn, or one host after the other, whatever order they were dealt in.
#[test]
fn ranks_are_numbered_by_host() {
    for (words, hosts) in [
        (&["--rank-by", "node"][..], "abab"),
        (&["--rank-by", "slot", "--map-by", "node"], "aabb"),
        (&["--rank-by", "slot"], "aabb"),
        (&["--map-by", "node"], "abab"),
    ] {
        let program = ["sh", "-c", "echo $RANK $PMI_HOSTNAME"];
        let words = [&["-launcher", "fork", "-hosts", "a:2,b:2"], words, &program].concat();
        let output = rig::output(rig::run(&words));
        let found: String = sorted_lines(&output).iter().map(|line| &line[2..]).collect();
        assert_eq!(found, hosts, "{words:?}");
    }
}

/// `--report-bindings` names the processors that the kernel shows for each rank, bound or not.
#[test]
fn bindings_are_reported() {
    let own = own_processors();
    let words = |binding| {
        let options = ["-n", "2", "--bind-to", binding, "--report-bindings"];
        [&options[..], &["sh", "-c", RANK_AND_PROCESSORS]].concat()
    };
    let output = rig::output(rig::run(&words("core")));
    let stderr = rig::text(&output.stderr);
    let lines = sorted_lines(&output);
    assert_eq!(lines.len(), 2, "{output:?}");
    for (rank, line) in lines.iter().enumerate() {
        let end = format!(" is bound to processors {}\n", &line[5..]);
        let is_told = |told: &str| told.contains(&format!("rank {rank} on host ")) && told.ends_with(&end);
        assert!(stderr.split_inclusive('\n').any(is_told), "{line}: {stderr}");
    }
    let (code, _, stderr) = told(rig::run(&words("none")));
    assert_eq!(code, Some(0), "{stderr}");
    for rank in 0..2 {
        let end = format!(" is not bound: it may run on processors {own}");
        let is_told = |told: &str| told.contains(&format!("rank {rank} on host ")) && told.ends_with(&end);
        assert!(stderr.lines().any(is_told), "{stderr}");
    }
    let (_, _, stderr) = told(rig::run(&["-n", "2", "--bind-to", "core", "true"]));
    assert_eq!(stderr, "", "nothing is said unasked");
}

/// `--output-filename` writes a file for each rank and stream, also if the rank writes nothing, beside the output of
/// the command or in its place.
#[test]
fn output_goes_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &Path| fs::read_to_string(folder.path().join(name)).unwrap();
    let script = "[ $RANK = 0 ] || { echo out$RANK; echo err$RANK >&2; }";
    for (suffix, stdout, stderr) in [("", "out1\n", "err1\n"), (":nocopy", "", "")] {
        let name = format!("new/out{}", suffix.len());
        let path = format!("{}{suffix}", folder.path().join(&name).display());
        let words = ["-n", "2", "--output-filename", &path, "sh", "-c", script];
        let found = told(rig::run(&words));
        assert_eq!(
            found,
            (Some(0), stdout.to_owned(), stderr.to_owned()),
            "{words:?}"
        );
        let job = Path::new(&name).join("1");
        assert_eq!(read(&job.join("rank.0/stdout")), "");
        assert_eq!(read(&job.join("rank.0/stderr")), "");
        assert_eq!(read(&job.join("rank.1/stdout")), "out1\n");
        assert_eq!(read(&job.join("rank.1/stderr")), "err1\n");
    }
}
