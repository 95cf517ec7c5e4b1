//! `ropewalk run` on four hosts that are network namespaces: own addresses, own host names, links of 100 Mbit/s. Needs
//! root and iproute2; without them it says so and tests nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

const ROPEWALK: &str = env!("CARGO_BIN_EXE_ropewalk");
const HOSTS: u8 = 4;
/// What `--detect` is given, and what the tests grant on busy cores beside the second that is promised.
const DETECT: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(4);

/// A bridge and the namespaces behind it; gone when this is dropped.
struct Network {
    /// What the names of its parts end in: namespaces belong to the whole machine.
    suffix: String,
    /// The third part of its addresses.
    subnet: u8,
    folder: tempfile::TempDir,
}

impl Network {
    /// `None` without the right to make one.
    fn new(subnet: u8) -> Option<Self> {
        let suffix = format!("{:x}{subnet}", std::process::id() & 0xffff);
        let folder = tempfile::tempdir().unwrap();
        let network = Self {
            suffix,
            subnet,
            folder,
        };
        let bridge = network.bridge();
        if !ip(&format!("link add {bridge} type bridge")) {
            eprintln!("skipped: this test makes network namespaces, for which it needs root and iproute2");
            return None;
        }
        assert!(ip(&format!("addr add {}/24 dev {bridge}", network.address(1))));
        assert!(ip(&format!("link set {bridge} up")));
        for host in 1..=HOSTS {
            let (namespace, link) = (network.namespace(host), network.link(host));
            assert!(ip(&format!("netns add {namespace}")));
            assert!(ip(&format!(
                "link add {link} type veth peer name eth0 netns {namespace}"
            )));
            assert!(ip(&format!("link set {link} master {bridge} up")));
            let address = network.address(10 + host);
            assert!(ip(&format!("-n {namespace} addr add {address}/24 dev eth0")));
            assert!(ip(&format!("-n {namespace} link set eth0 up")));
            assert!(ip(&format!("-n {namespace} link set lo up")));
            // Shaped where the kernel can; a link that is faster tests only less.
            let shape = format!("qdisc add dev {link} root tbf rate 100mbit burst 64kbit latency 100ms");
            let _ = Command::new("tc").args(shape.split(' ')).status();
        }
        let script = format!(
            "#!/bin/sh\nhost=host${{1##*.1}}; name={0}-${{1##*.1}}; shift\n\
             exec ip netns exec $name unshare -u sh -c 'hostname $0; exec \"$@\"' $host \"$@\"\n",
            network.namespace(0).trim_end_matches("-0"),
        );
        fs::write(network.command(), script).unwrap();
        fs::set_permissions(network.command(), fs::Permissions::from_mode(0o755)).unwrap();
        Some(network)
    }

    fn bridge(&self) -> String {
        format!("rwb{}", self.suffix)
    }

    fn namespace(&self, host: u8) -> String {
        format!("rw{}-{host}", self.suffix)
    }

    fn link(&self, host: u8) -> String {
        format!("rwl{}-{host}", self.suffix)
    }

    fn address(&self, number: u8) -> String {
        format!("10.213.{}.{number}", self.subnet)
    }

    fn command(&self) -> String {
        self.folder.path().join("like-rsh").to_str().unwrap().to_owned()
    }

    /// A job with one rank on each host, in a chain of agents or a tree.
    fn job(&self, arity: u8, words: &[&str]) -> Command {
        let hosts: Vec<_> = (1..=HOSTS).map(|host| self.address(10 + host)).collect();
        let mut command = Command::new(ROPEWALK);
        command
            .args([
                "run",
                "-launcher-exec",
                &self.command(),
                "--detect",
                "1",
                "--arity",
                &arity.to_string(),
            ])
            .args(["-hosts", &hosts.join(","), "-n", &HOSTS.to_string()])
            .args(words)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 1..=HOSTS {
            ip(&format!("netns del {}", self.namespace(host)));
        }
        ip(&format!("link del {}", self.bridge()));
    }
}

fn ip(words: &str) -> bool {
    let mut command = Command::new("ip");
    let status = command.args(words.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn wait(mut job: Child, limit: Duration) -> Output {
    let begin = Instant::now();
    while job.try_wait().unwrap().is_none() {
        if begin.elapsed() > limit {
            job.kill().unwrap();
            panic!("no verdict within {limit:?}");
        }
        sleep(Duration::from_millis(10));
    }
    job.wait_with_output().unwrap()
}

fn assert_none_left(marker: &str) {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let left = fs::read_dir("/proc").unwrap().filter(|entry| {
            let path = entry.as_ref().unwrap().path().join("cmdline");
            let arguments = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(marker)
        });
        match left.count() {
            0 => return,
            left => assert!(Instant::now() < deadline, "{left} processes are left"),
        }
        sleep(Duration::from_millis(10));
    }
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
    let marker = network.folder.path().join("mark").to_str().unwrap().to_owned();
    let script = format!("echo up; setsid env -i sh -c 'sleep 100; : {marker}' & sleep 100; : {marker}");
    let mut job = network.job(1, &["sh", "-c", &script]);
    let mut job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(job.stdout.take().unwrap());
    for _ in 0..HOSTS {
        std::io::BufRead::read_line(&mut lines, &mut String::new()).unwrap();
    }
    assert!(ip(&format!("link set {} down", network.link(2))));
    let output = wait(job, DETECT + Duration::from_secs(1) + SLACK);
    assert_eq!(output.status.code(), Some(125));
    let stderr = text(&output.stderr);
    let expected = format!(
        "the agent on host {} gave no sign of life for 1 s",
        network.address(12)
    );
    assert!(stderr.contains(&expected), "{stderr}");
    assert_none_left(&marker);
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
