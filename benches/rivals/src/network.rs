//! Hosts that are network namespaces behind a bridge.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::bail;

use crate::manager::Manager;

/// A bridge and the namespaces behind it; gone when this is dropped.
pub(crate) struct Network {
    hosts: u8,
    /// The part of the names of its bridge, namespaces and links that keeps them apart from those of other
    /// networks: namespaces belong to the whole machine.
    suffix: String,
    folder: tempfile::TempDir,
}

const SUBNET: &str = "10.212.77";

impl Network {
    pub(crate) fn new(hosts: u8) -> anyhow::Result<Self> {
        let network = Self {
            hosts,
            suffix: format!("{:x}", std::process::id() & 0xffff),
            folder: tempfile::tempdir()?,
        };
        let bridge = network.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("addr add {SUBNET}.1/24 dev {bridge}"))?;
        ip(&format!("link set {bridge} up"))?;
        for host in 1..=hosts {
            let (namespace, link) = (network.namespace(host), network.link(host));
            ip(&format!("netns add {namespace}"))?;
            ip(&format!(
                "link add {link} type veth peer name eth0 netns {namespace}"
            ))?;
            ip(&format!("link set {link} master {bridge} up"))?;
            ip(&format!("-n {namespace} addr add {}/24 dev eth0", address(host)))?;
            ip(&format!("-n {namespace} link set eth0 up"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        // Called as rsh: by Hydra with -x before the host.
        let script = format!(
            "#!/bin/sh\n[ \"$1\" != -x ] || shift\nhost=$1; shift\n\
             exec nsenter --net=/run/netns/rwn{}-${{host##*.1}} sh -c \"$*\"\n",
            network.suffix
        );
        fs::write(network.command(), script)?;
        fs::set_permissions(network.command(), fs::Permissions::from_mode(0o755))?;
        Ok(network)
    }

    /// The options that start a job on the first so many hosts.
    pub(crate) fn options(&self, manager: Manager, hosts: u8) -> Vec<OsString> {
        let list: Vec<_> = (1..=hosts).map(address).collect();
        let (kind, interface): (&[&str], _) = match manager {
            Manager::Hydra => (&["-launcher", "ssh"], self.bridge()),
            Manager::Ropewalk => (&[], format!("{SUBNET}.1")),
        };
        let mut words: Vec<OsString> = kind.iter().map(OsString::from).collect();
        words.extend(["-launcher-exec".into(), self.command().into_os_string()]);
        words.extend(["-iface", &interface, "-hosts", &list.join(",")].map(OsString::from));
        words
    }

    /// Cuts the link of a host, or mends it.
    pub(crate) fn set_link(&self, host: u8, is_up: bool) -> anyhow::Result<()> {
        let state = if is_up { "up" } else { "down" };
        ip(&format!("link set {} {state}", self.link(host)))
    }

    fn bridge(&self) -> String {
        format!("rwb{}", self.suffix)
    }

    fn namespace(&self, host: u8) -> String {
        format!("rwn{}-{host:02}", self.suffix)
    }

    fn link(&self, host: u8) -> String {
        format!("rwl{}-{host}", self.suffix)
    }

    fn command(&self) -> PathBuf {
        self.folder.path().join("like-rsh")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What was not made need not be removed.
        for host in 1..=self.hosts {
            let _ = ip(&format!("netns del {}", self.namespace(host)));
        }
        let _ = ip(&format!("link del {}", self.bridge()));
    }
}

/// The last part begins with a 1, behind which is the host's number.
fn address(host: u8) -> String {
    format!("{SUBNET}.1{host:02}")
}

fn ip(words: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    let status = command.args(words.split(' ')).stderr(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        bail!("`ip {words}` failed; hosts that are network namespaces take root and iproute2");
    }
    Ok(())
}
