//! Hosts that are network namespaces behind a bridge.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};

use super::ROPEWALK;

/// How many hosts a network has.
pub(crate) const HOSTS: u8 = 4;

/// A bridge and the namespaces behind it; gone when this is dropped.
pub(crate) struct Network {
    /// The end of the names of its parts, since namespaces belong to the whole machine.
    suffix: String,
    /// The third part of its addresses.
    subnet: u8,
    folder: tempfile::TempDir,
}

impl Network {
    /// `None` without the right to make one.
    pub(crate) fn new(subnet: u8) -> Option<Self> {
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
             exec ip netns exec $name unshare -u sh -c 'hostname $0; eval \"exec $*\"' $host \"$@\"\n",
            network.namespace(0).trim_end_matches("-0"),
        );
        fs::write(network.command(), script).unwrap();
        fs::set_permissions(network.command(), fs::Permissions::from_mode(0o755)).unwrap();
        Some(network)
    }

    pub(crate) fn bridge(&self) -> String {
        format!("rwb{}", self.suffix)
    }

    fn namespace(&self, host: u8) -> String {
        format!("rw{}-{host}", self.suffix)
    }

    pub(crate) fn link(&self, host: u8) -> String {
        format!("rwl{}-{host}", self.suffix)
    }

    pub(crate) fn address(&self, number: u8) -> String {
        format!("10.213.{}.{number}", self.subnet)
    }

    /// A command that runs another one on a host, as rsh does.
    pub(crate) fn command(&self) -> String {
        self.folder.path().join("like-rsh").to_str().unwrap().to_owned()
    }

    /// A folder that is gone with the network.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command that runs on a host, under the host's name.
    pub(crate) fn on(&self, host: u8, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace(host)))
            .args(["unshare", "-u", "sh", "-c", "hostname $0; exec \"$@\""])
            .arg(format!("host{host}"))
            .args(words);
        command
    }

    /// The numbers of the processes on a host.
    pub(crate) fn pids_on(&self, host: u8) -> Vec<String> {
        let namespace = fs::metadata(format!("/run/netns/{}", self.namespace(host))).unwrap();
        let name = format!("net:[{}]", namespace.ino());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let there = processes.filter(|process| {
            let of_process = fs::read_link(process.path().join("ns/net"));
            of_process.is_ok_and(|found| found.as_os_str() == name.as_str())
        });
        there
            .map(|process| process.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// A job with one rank on each host, in a chain of agents or a tree.
    pub(crate) fn job(&self, arity: u8, words: &[&str]) -> Command {
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

pub(crate) fn ip(words: &str) -> bool {
    let mut command = Command::new("ip");
    let status = command.args(words.split(' ')).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
