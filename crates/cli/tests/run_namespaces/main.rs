//! `ropewalk run` on four hosts that are network namespaces: own addresses, own host names, links of 100 Mbit/s. Needs
//! root and iproute2; without them it says so and tests nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken_links;
mod encryption;
mod foreign;
mod mpi;
mod network;
mod relay;
mod requeue;
#[path = "../rig/mod.rs"]
mod rig;
mod slurm;
mod spawn;
mod ssh;
mod suspended;

use std::{
    process::{Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use network::{HOSTS, Network, ip};

use rig::{Guarded, ROPEWALK, assert_none_left, meeting, text};

/// The value of `--detect`.
const DETECT: Duration = Duration::from_secs(1);
/// The promised time within which a fault is named of which only silence tells.
const LIMIT: Duration = Duration::from_secs(2);
/// How often a fault is made before it counts as named too late.
const TRIES: usize = 3;
/// After what is promised a job that says nothing is given up.
const SLACK: Duration = Duration::from_secs(4);

fn wait(job: impl Into<Guarded>, limit: Duration) -> Output {
    let mut job = job.into();
    rig::await_end(&mut job, limit);
    job.wait_with_output().unwrap()
}

/// Agents reach each other over their own interfaces, ranks see their own hosts, and output comes through whole.
#[test]
fn a_tree_of_hosts_runs_a_job() {
    let Some(network) = Network::new(71) else {
        return;
    };
    for arity in [1, 2, 4] {
        let script = "hostname; seq 20000; echo $RANK $MASTER_ADDR >&2";
        let output = network
            .job(arity, &["-prepend-pattern", "%r ", "sh", "-c", script])
            .output()
            .unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        let stdout = text(&output.stdout);
        for rank in 0..HOSTS {
            let prefix = format!("{rank} ");
            let lines: Vec<_> = stdout
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix))
                .collect();
            assert_eq!(lines[0], format!("host{}", rank + 1));
            let numbers: Vec<_> = (1..=20_000).map(|number: u32| number.to_string()).collect();
            assert_eq!(lines[1..], numbers);
            assert!(
                stderr.contains(&format!("{rank} {rank} {}", network.address(11))),
                "{stderr}"
            );
        }
    }
}

/// A link that is cut in the middle of the tree is found by the silence behind it, and nothing stays on either side.
#[test]
fn a_cut_link_is_named() {
    let Some(network) = Network::new(72) else {
        return;
    };
    let mut times = Vec::new();
    while times.len() < TRIES {
        let marker = network.folder().join("mark").to_str().unwrap().to_owned();
        let script = format!("echo up; setsid env -i sh -c 'sleep 100; : {marker}' & sleep 100; : {marker}");
        let mut job = network.job(1, &["sh", "-c", &script]);
        let mut job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(job.stdout.take().unwrap());
        for _ in 0..HOSTS {
            std::io::BufRead::read_line(&mut lines, &mut String::new()).unwrap();
        }
        assert!(ip(&format!("link set {} down", network.link(2))));
        let struck = Instant::now();
        let output = wait(job, LIMIT + SLACK);
        times.push(struck.elapsed());
        assert_eq!(output.status.code(), Some(125));
        let stderr = text(&output.stderr);
        let expected = format!(
            "the agent on host {} gave no sign of life for 1 s",
            network.address(12)
        );
        assert!(stderr.contains(&expected), "{stderr}");
        assert_none_left(&marker);
        if times.iter().any(|time| *time <= LIMIT) {
            return;
        }
        assert!(ip(&format!("link set {} up", network.link(2))));
    }
    panic!("took {times:?} and not at most {LIMIT:?}");
}

/// A host whose network is down when the job starts is named with what its agent said.
#[test]
fn a_host_without_network_is_named() {
    let Some(network) = Network::new(73) else {
        return;
    };
    assert!(ip(&format!("link set {} down", network.link(3))));
    let job = network
        .job(2, &["sleep", "100"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = wait(job, 2 * DETECT + Duration::from_secs(1) + SLACK);
    assert_eq!(output.status.code(), Some(125));
    let stderr = text(&output.stderr);
    assert!(
        stderr.contains(&format!("the agent on host {} ", network.address(13))),
        "{stderr}"
    );
}
