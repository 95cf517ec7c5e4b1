//! `ropewalk run` in the place of Hydra's mpiexec: what its options and variables do to a job. Each expectation is what
//! mpiexec.hydra 4.0.2 does, unless it says otherwise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use rig::ROPEWALK;

fn run(words: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = rig::run(words);
    command.envs(variables.iter().copied());
    rig::output(command)
}

/// The lines of the ranks in order; what they would find by chance is not there.
fn lines(words: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let output = run(words, variables);
    assert!(output.status.success(), "{words:?}: {output:?}");
    rig::sorted_lines(&output)
}

const NAMED: &str = "echo $RANK:$MPIR_CVAR_CH3_INTERFACE_HOSTNAME";

/// Options that say how ranks are put on hosts that there are not.
const THREE_HOSTS: [&str; 4] = ["-launcher", "fork", "-hosts", "a:1,b:3,c:2"];

/// "Local inherited env options override the global options"; "user env is set by -genv, -env"; "these
/// options do not affect the user set environment". (Hydra itself lets what it should keep back through to
/// the processes of its own host.)
#[test]
fn each_program_inherits_what_it_is_to() {
    let variables = [("A", "a"), ("B", "b")];
    let shell = ["/bin/sh", "-c", "echo $RANK:[$A$B]"];
    for (global, first, second, expected) in [
        (&[][..], &["-envnone"][..], &[][..], ["0:[]", "1:[ab]"]),
        (&["-genvnone"], &["-envall"], &[], ["0:[ab]", "1:[]"]),
        (&["-genvlist", "B"], &["-envlist", "A"], &[], ["0:[a]", "1:[b]"]),
        (
            &["-genvnone", "-genv", "A", "g"],
            &[],
            &["-env", "A", "e", "-envlist", "B"],
            ["0:[g]", "1:[eb]"],
        ),
    ] {
        let words = [global, first, &shell, &[":"], second, &shell].concat();
        assert_eq!(lines(&words, &variables), expected, "{words:?}");
    }
}

/// Ranks find the name of their host, also of one alone, as the list of hosts has it; unless that is switched
/// off, or the interface is named.
#[test]
fn the_name_of_the_host_is_told_unless_switched_off() {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let own = format!("0:{}", own.trim());
    let told = |options: &[&str], variables: &[(&str, &str)]| {
        lines(&[options, &["sh", "-c", NAMED]].concat(), variables)
    };
    assert_eq!(told(&[], &[]), [own.as_str()]);
    assert_eq!(told(&["-hosts", "localhost"], &[]), ["0:localhost"]);
    assert_eq!(told(&["-disable-hostname-propagation"], &[]), ["0:"]);
    let off = [("HYDRA_HOSTNAME_PROPAGATION", "0")];
    assert_eq!(told(&[], &off), ["0:"]);
    assert_eq!(told(&["-enable-hostname-propagation"], &off), [own.as_str()]);
    let script = "echo $MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE-$MPIR_CVAR_CH3_INTERFACE_HOSTNAME";
    assert_eq!(lines(&["-iface", "lo", "sh", "-c", script], &[]), ["lo-"]);
    let many = [
        &THREE_HOSTS[..],
        &["-disable-hostname-propagation", "-n", "2", "sh", "-c", NAMED],
    ]
    .concat();
    assert_eq!(lines(&many, &[]), ["0:", "1:"]);
}

/// Ranks find all that Hydra 4.0.2 gives them but its own control channel, and the name of their host as
/// newer Hydras do.
#[test]
fn ranks_find_what_hydra_gives() {
    let names: Vec<_> = lines(&["-genvnone", "/usr/bin/env"], &[])
        .iter()
        .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
        .collect();
    for name in [
        "GFORTRAN_UNBUFFERED_PRECONNECTED",
        "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
        "MPI_LOCALNRANKS",
        "MPI_LOCALRANKID",
        "PMI_FD",
        "PMI_HOSTNAME",
        "PMI_RANK",
        "PMI_SIZE",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
    let script = "echo [$HYDRA_USER_PROVIDED_BINDING]";
    for (binding, expected) in [("none", "[]"), ("machine", "[1]"), ("rr", "[1]")] {
        assert_eq!(lines(&["-bind-to", binding, "sh", "-c", script], &[]), [expected]);
    }
}

/// Hosts are used in the order of their slots, and this one is left out.
#[test]
fn hosts_are_ordered_and_left_out() {
    for (order, expected) in [
        ("ASCENDING", ["0:a", "1:c", "2:c", "3:b", "4:b", "5:b"]),
        ("descending", ["0:b", "1:b", "2:b", "3:c", "4:c", "5:a"]),
    ] {
        let words = [
            &THREE_HOSTS[..],
            &["-order-nodes", order, "-n", "6", "sh", "-c", NAMED],
        ]
        .concat();
        assert_eq!(lines(&words, &[]), expected, "{order}");
    }
    let words = [
        "-skip-launch-node",
        "-launcher",
        "fork",
        "-hosts",
        "a,localhost,b",
        "-n",
        "4",
    ];
    let words = [&words[..], &["sh", "-c", NAMED]].concat();
    assert_eq!(lines(&words, &[]), ["0:a", "1:b", "2:a", "3:b"]);
}

/// Each rank gets its graphics processors by number; with 0 it gets none.
#[test]
fn graphics_processors_are_dealt() {
    let script = "echo $RANK:$CUDA_VISIBLE_DEVICES";
    for (count, expected) in [
        ("1", ["0:0", "1:1"]),
        ("2", ["0:0,1", "1:2,3"]),
        ("0", ["0:-1", "1:-1"]),
    ] {
        let words = ["-gpus-per-proc", count, "-n", "2", "sh", "-c", script];
        assert_eq!(lines(&words, &[]), expected, "{count}");
    }
}

/// Which ranks run where is told before anything else.
#[test]
fn the_rank_map_is_printed() {
    let words = [&THREE_HOSTS[..], &["-print-rank-map", "-n", "4", "echo", "done"]].concat();
    let output = run(&words, &[]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout, "(a:0)\n(b:1,2,3)\ndone\ndone\ndone\ndone\n");
}

/// `-info` says what there is to choose among, and starts nothing.
#[test]
fn info_says_what_there_is() {
    let output = run(&["-info", "-n", "1", "echo", "started"], &[]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !stdout.contains("started"), "{stdout}");
    assert!(stdout.contains(concat!(
        "Version:                                 ",
        env!("CARGO_PKG_VERSION")
    )));
    assert!(
        stdout.contains("Launchers available:") && stdout.contains("Resource management kernels"),
        "{stdout}"
    );
}

/// Options that only tune Hydra change nothing, and are named if much is to be told; Hydra's variable for
/// that is heeded.
#[test]
fn what_tunes_hydra_is_named_if_much_is_told() {
    let words = ["-demux", "select", "-profile", "echo", "ran"];
    let output = run(&words, &[]);
    assert_eq!(
        (&output.stdout[..], &output.stderr[..]),
        (&b"ran\n"[..], &b""[..]),
        "{output:?}"
    );
    let output = run(&words, &[("HYDRA_DEBUG", "1")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("option -demux select tunes"), "{stderr}");
}

/// A file of options that a variable or the home folder has is read unasked; options of the command count more.
#[test]
fn files_of_options_are_read_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".mpiexec.hydra.conf");
    fs::write(&path, "-genv A file -genv B file\n-n 2\n").unwrap();
    let (path, home) = (path.to_str().unwrap(), folder.path().to_str().unwrap());
    let words = ["-genv", "A", "command", "sh", "-c", "echo $RANK:$A:$B"];
    for variable in [("HYDRA_CONFIG_FILE", path), ("HOME", home)] {
        let expected = ["0:command:file", "1:command:file"];
        assert_eq!(lines(&words, &[variable]), expected, "{variable:?}");
    }
}

/// The processors that this process may run on.
fn own_processors() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:\t"));
    processors(list.unwrap())
}

/// Those of a list as the kernel writes it.
fn processors(list: &str) -> Vec<u32> {
    let ranges = list.trim().split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    });
    ranges.collect()
}

const BOUND: &str = "printf '%04d ' $RANK; grep Cpus_allowed_list /proc/self/status | cut -f2";

/// The processors on which each rank may run.
fn bound(options: &[&str], ranks: usize) -> Vec<Vec<u32>> {
    let ranks = ranks.to_string();
    let words = [options, &["-n", &ranks, "sh", "-c", BOUND]].concat();
    let lines = lines(&words, &[]);
    let lists = lines.iter().map(|line| line.split_once(' ').unwrap().1);
    lists.map(processors).collect()
}

/// Ranks are bound to one processor each, to what a list says, or to parts of the host with the same
/// processors that the kernel shows to be in them. Those that a list does not have are bound nowhere.
#[test]
fn ranks_are_bound_as_told() {
    let own = own_processors();
    let each: Vec<_> = own.iter().map(|&number| vec![number]).collect();
    let (first, last) = (own[0], own[own.len() - 1]);
    let once_more = bound(&["-bind-to", "rr"], own.len() + 1);
    assert_eq!(once_more, [&each[..], &[vec![first]]].concat());
    let mut threads = bound(&["-bind-to", "hwthread"], own.len());
    threads.sort_unstable();
    assert_eq!(threads, each);
    assert_eq!(bound(&["-bind-to", "machine"], 2), [own.as_slice(), &own]);
    let list = format!("user:{last},{first}+{last}x2");
    let mut both = vec![first, last];
    both.dedup();
    assert_eq!(
        bound(&["-bind-to", &list], 4),
        [vec![last], both.clone(), both, own.clone()]
    );
    // Most virtual machines show caches, but not all.
    let shared = format!("/sys/devices/system/cpu/cpu{first}/cache/index2/shared_cpu_list");
    if let Ok(shared) = fs::read_to_string(shared) {
        let mut shared = processors(&shared);
        shared.retain(|number| own.contains(number));
        assert_eq!(bound(&["-bind-to", "l2cache"], 1), [shared]);
    }
    let mut by_thread = bound(&["-bind-to", "socket", "-map-by", "hwthread"], own.len());
    by_thread.sort_unstable();
    by_thread.dedup();
    assert_eq!(
        by_thread.concat().len(),
        own.len(),
        "sockets have no processor in common"
    );
}

/// Unlike Hydra's, ranks keep to what the launcher itself is kept to.
#[test]
fn ranks_are_bound_inside_of_what_is_allowed() {
    let last = own_processors().pop().unwrap();
    for binding in ["rr", "core", "socket", "hwthread"] {
        let mut command = Command::new("taskset");
        let number = last.to_string();
        command.args([
            "-c", &number, ROPEWALK, "run", "-n", "2", "-bind-to", binding, "sh", "-c", BOUND,
        ]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<_> = stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [format!("0000 {last}"), format!("0001 {last}")],
            "{binding}"
        );
    }
}

/// A binding to something that the host does not have is refused, and nothing runs; Hydra hangs, aborts, or
/// binds nowhere.
#[test]
fn what_cannot_be_bound_to_is_refused() {
    let own = own_processors();
    let other = (0..1024).find(|number| !own.contains(number)).unwrap();
    for (binding, why) in [
        (format!("user:{other}"), format!("there is no processor {other}")),
        ("socket:1024".to_owned(), "it wants socket:1024".to_owned()),
        ("l5cache".to_owned(), "shows no l5cache".to_owned()),
        ("core:0".to_owned(), "1 or more".to_owned()),
        ("pci:0000:00:01.0".to_owned(), "names a device".to_owned()),
    ] {
        let output = run(&["-bind-to", &binding, "echo", "ran"], &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(&why), "{binding}: {stderr}");
        assert_eq!(
            (output.status.code(), &output.stdout[..]),
            (Some(125), &b""[..]),
            "{binding}"
        );
    }
}

/// A map says on which host each rank runs, as with MPICH 5; one that says it of some only is refused, which
/// MPICH does not.
#[test]
fn ranks_are_mapped_to_hosts() {
    let words = |map: &'static str| {
        let words = ["-rankmap", map, "-n", "5", "sh", "-c", NAMED];
        [&THREE_HOSTS[..], &words].concat()
    };
    assert_eq!(
        lines(&words("2,1,(0,2,1),2"), &[]),
        ["0:c", "1:b", "2:a", "3:b", "4:c"]
    );
    for (map, why) in [
        ("0,1", "hosts for 2 ranks, and there are 5"),
        ("0,0,0,0,3", "rank 4 is to run on host number 3"),
        ("a,b", "\"a\" says no host"),
    ] {
        let output = run(&words(map), &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(125) && stderr.contains(why),
            "{map}: {stderr}"
        );
    }
}

/// Only what the named ranks write comes out, also to files; how the others end counts all the same.
#[test]
fn output_comes_from_some_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo out$RANK; echo err$RANK >&2";
    let shown = |ranks: &str| {
        let output = run(&["-output-from", ranks, "-n", "4", "sh", "-c", script], &[]);
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|bytes| {
            let text = String::from_utf8(bytes).unwrap();
            let mut lines: Vec<_> = text.lines().map(|line| line[3..].to_owned()).collect();
            lines.sort_unstable();
            lines.concat()
        })
    };
    // Of several Hydra takes the first.
    for (ranks, expected) in [
        ("1", "1"),
        ("0,2-3", "023"),
        ("9", ""),
        ("none", ""),
        ("all", "0123"),
        ("-1", "0123"),
    ] {
        assert_eq!(shown(ranks), [expected, expected], "{ranks}");
    }
    let pattern = folder.path().join("out.%r");
    let words = [
        "-output-from",
        "1",
        "-outfile-pattern",
        pattern.to_str().unwrap(),
        "-n",
        "3",
    ];
    assert_eq!(lines(&[&words[..], &["sh", "-c", script]].concat(), &[]), [""; 0]);
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1);
    assert_eq!(fs::read(folder.path().join("out.1")).unwrap(), b"out1\n");
    let output = run(
        &["-output-from", "0", "-n", "2", "sh", "-c", "exit $((3 * RANK))"],
        &[],
    );
    assert_eq!(output.status.code(), Some(3));
}

/// An option that there is not is named with the one that is most like it. (Hydra names it only.)
#[test]
fn options_are_suggested() {
    for (word, text) in [
        ("-ppm", "there is no option -ppm; did you mean -ppn?"),
        ("--on-failur", "did you mean --on-failure?"),
        ("-bind_to", "did you mean -bind-to?"),
    ] {
        let output = run(&[word, "2", "true"], &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(125) && stderr.contains(text),
            "{word}: {stderr}"
        );
    }
}
