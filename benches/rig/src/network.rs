//! A bridge, and the hosts behind it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process,
    sync::Mutex,
};

use anyhow::{Context, bail};
use ropewalk_launch::StartMethod;
use rustix::process::Pid;

use crate::{
    control_group::{ControlGroup, Controller},
    namespace::{
        self, NAMESPACES, execute, interfaces, ip, kill_all_in, namespaces, processes_in, tc, within,
    },
};

/// Hosts of this machine's own, numbered from 1, and host 0 for the launcher, whose links are not slowed down. All is
/// gone when this is dropped, and the rest of a killed process when the next network is made.
#[derive(Debug)]
pub struct Network {
    /// Part of all names: the process that made it, or a word.
    id: String,
    hosts: u8,
    mbit: u32,
    /// The host whose every connection goes through a relay.
    relayed: Option<u8>,
    /// The changes that have to be undone.
    changes: Mutex<Vec<Change>>,
    is_kept: bool,
}

/// The directions of a host's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Sending and receiving.
    Both,
    /// Receiving.
    In,
    /// Sending.
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Cut(u8),
    OneWay(u8, u8),
    Rate(u8),
}

impl Network {
    /// The ports that relayed hosts and their peers use.
    pub(crate) const RELAYED_PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_063;

    /// A network of so many hosts with this rate in each direction.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(hosts: u8, mbit: u32) -> anyhow::Result<Self> {
        Self::make(process_name(), hosts, mbit, None)
    }

    /// A network where every connection from and to one host goes through a [`Relay`](super::Relay).
    pub(crate) fn with_relay(hosts: u8, mbit: u32, relayed: u8) -> anyhow::Result<Self> {
        Self::make(process_name(), hosts, mbit, Some(relayed))
    }

    /// Makes the network that stays after [`keep`](Self::keep), of which there is one on a machine.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn up(hosts: u8, mbit: u32) -> anyhow::Result<Self> {
        Self::make(STANDING.to_owned(), hosts, mbit, None)
    }

    /// The network that stands.
    ///
    /// # Errors
    /// If there is none.
    pub fn standing() -> anyhow::Result<Self> {
        let text = fs::read_to_string(folder(STANDING).join("network"));
        let text = text.context("no hosts are up: `cargo xtask rig up` makes them")?;
        let mut numbers = text.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(hosts)), Some(Ok(mbit))) = (numbers.next(), numbers.next()) else {
            bail!("cannot read what `rig up` left");
        };
        Ok(Self {
            id: STANDING.to_owned(),
            hosts: u8::try_from(hosts)?,
            mbit,
            relayed: None,
            changes: Mutex::default(),
            is_kept: true,
        })
    }

    fn make(id: String, hosts: u8, mbit: u32, relayed: Option<u8>) -> anyhow::Result<Self> {
        Self::sweep(false)?;
        let network = Self {
            id,
            hosts,
            mbit,
            relayed,
            changes: Mutex::default(),
            is_kept: false,
        };
        network
            .build()
            .context("cannot make hosts: it takes root, iproute2, network namespaces and the queue `tbf`")?;
        Ok(network)
    }

    fn build(&self) -> anyhow::Result<()> {
        let bridge = self.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("link set {bridge} up"))?;
        for host in 0..=self.hosts {
            let outer = match self.relayed == Some(host) {
                true => self.build_relayed(host)?,
                false => self.namespace(host),
            };
            if outer == self.namespace(host) {
                ip(&format!("netns add {outer}"))?;
            }
            let link = self.link(host);
            ip(&format!("link add {link} type veth peer name eth0 netns {outer}"))?;
            ip(&format!("link set {link} master {bridge} up"))?;
            self.address_interface(&outer, "eth0", &[self.address(host)])?;
            if host > 0 {
                let shape = shape(self.mbit);
                tc(&format!("qdisc add dev {link} root {shape}"))?;
                tc(&format!("-n {outer} qdisc add dev eth0 root {shape}"))?;
            }
        }
        let folder = folder(&self.id);
        fs::create_dir_all(&folder)?;
        // As rsh does, it has a shell read the words; Hydra puts -x before the host.
        let script = format!(
            "#!/bin/sh\n[ \"$1\" != -x ] || shift\nnumber=$((${{1##*.}} - {FIRST_ADDRESS})); shift\n\
             {joining}\n\
             exec nsenter --net={NAMESPACES}/{prefix}-$number \
             unshare -u sh -c 'hostname $0; eval \"exec $*\"' host$number \"$@\"\n",
            joining = ControlGroup::joining(&format!("{}-$number", self.prefix())),
            prefix = self.prefix(),
        );
        fs::write(self.command(), script)?;
        fs::set_permissions(self.command(), fs::Permissions::from_mode(0o755))?;
        let numbers = format!("{} {}", self.hosts, self.mbit);
        Ok(fs::write(folder.join("network"), numbers)?)
    }

    /// A host that sees the others in one namespace, and is seen by them in another. Returns that one.
    fn build_relayed(&self, host: u8) -> anyhow::Result<String> {
        let (inner, towards, outer) = (
            self.namespace(host),
            self.towards_relayed(),
            self.outside_relayed(),
        );
        for namespace in [&inner, &towards, &outer] {
            ip(&format!("netns add {namespace}"))?;
        }
        ip(&format!(
            "-n {towards} link add eth0 type veth peer name eth0 netns {inner}"
        ))?;
        self.address_interface(&inner, "eth0", &[self.address(host)])?;
        let others = (0..=self.hosts).filter(|other| *other != host);
        let others: Vec<String> = others.map(|other| self.address(other)).collect();
        self.address_interface(&towards, "eth0", &others)?;
        Ok(outer)
    }

    fn address_interface(
        &self,
        namespace: &str,
        interface: &str,
        addresses: &[String],
    ) -> anyhow::Result<()> {
        for address in addresses {
            ip(&format!("-n {namespace} addr add {address}/24 dev {interface}"))?;
        }
        ip(&format!("-n {namespace} link set {interface} up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        // The rule that delivers to a host's own addresses gives way to those that cut one direction.
        ip(&format!(
            "-n {namespace} rule add pref {} lookup local",
            PREF_OF_CUTS + 1
        ))?;
        ip(&format!("-n {namespace} rule del pref 0"))?;
        // The relay listens at these, and needs others to connect.
        let is_relay = [self.towards_relayed(), self.outside_relayed()].contains(&namespace.to_owned());
        let (least, most) = (Self::RELAYED_PORTS.start(), Self::RELAYED_PORTS.end());
        let ports = self
            .relayed
            .filter(|_| !is_relay)
            .map(|_| format!("{least} {most}"));
        within(namespace, || {
            // A connection that stands would otherwise go past the rules that cut one direction.
            fs::write("/proc/sys/net/ipv4/ip_early_demux", "0")?;
            if let Some(ports) = &ports {
                fs::write("/proc/sys/net/ipv4/ip_local_port_range", ports)?;
            }
            Ok(())
        })
    }

    /// Leaves everything where it is.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    /// Removes what processes left that are gone, and the network that stands if `also_standing`.
    ///
    /// # Errors
    /// If a folder cannot be read or removed.
    pub fn sweep(also_standing: bool) -> anyhow::Result<()> {
        let own = process_name();
        let is_left = |name: &str| {
            let id = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
            id.is_some_and(|id| match u32::from_str_radix(id, 16) {
                Ok(process) => id != own && !Path::new(&format!("/proc/{process}")).exists(),
                Err(_) => id == STANDING && also_standing,
            })
        };
        for namespace in namespaces().iter().filter(|name| is_left(name)) {
            namespace::remove(namespace);
        }
        for interface in interfaces().iter().filter(|name| is_left(name)) {
            // Links go with their namespaces, but later.
            let _ = ip(&format!("link del {interface}"));
        }
        drop(ControlGroup::left(is_left));
        for entry in fs::read_dir(std::env::temp_dir())?.flatten() {
            if is_left(&entry.file_name().to_string_lossy()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// How many hosts there are beside the launcher's.
    pub fn hosts(&self) -> u8 {
        self.hosts
    }

    /// The IP address of a host.
    pub fn address(&self, host: u8) -> String {
        // No other network sees it, so all have the same.
        format!("10.217.0.{}", FIRST_ADDRESS + host)
    }

    /// All hosts with so many ranks on each, as launchers want them.
    pub fn hosts_with_ranks(&self, ranks: u16) -> String {
        let hosts = (1..=self.hosts).map(|host| format!("{}:{ranks}", self.address(host)));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// The name of the namespace of a host.
    pub fn namespace(&self, host: u8) -> String {
        format!("{}-{host}", self.prefix())
    }

    /// How a launcher on host 0 starts agents on the others.
    pub fn method(&self) -> StartMethod {
        StartMethod::Command(vec![self.command().into_os_string()])
    }

    /// A program that is used like rsh(1).
    pub fn command(&self) -> PathBuf {
        folder(&self.id).join("like-rsh")
    }

    /// Changes a host's rate.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn set_rate(&self, host: u8, direction: Direction, mbit: u32) -> anyhow::Result<()> {
        self.note(Change::Rate(host));
        self.shape(host, direction, mbit)
    }

    fn shape(&self, host: u8, direction: Direction, mbit: u32) -> anyhow::Result<()> {
        if direction != Direction::Out {
            tc(&format!(
                "qdisc change dev {} root {}",
                self.link(host),
                shape(mbit)
            ))?;
        }
        if direction != Direction::In {
            tc(&format!(
                "-n {} qdisc change dev eth0 root {}",
                self.outer(host),
                shape(mbit)
            ))?;
        }
        Ok(())
    }

    /// Lets nothing through from and to a host, without a word to either side.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn cut(&self, host: u8) -> anyhow::Result<()> {
        self.note(Change::Cut(host));
        self.set_port_state(host, PORT_DISABLED)
    }

    /// Lets everything through again.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn mend(&self, host: u8) -> anyhow::Result<()> {
        self.set_port_state(host, PORT_FORWARDING)
    }

    /// Lets nothing through from one host to another; what goes the other way arrives.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn cut_one_way(&self, from: u8, to: u8) -> anyhow::Result<()> {
        self.note(Change::OneWay(from, to));
        self.change_rule("add", from, to)
    }

    /// Does to a host what a loss of its power does: its peers hear nothing.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn kill_host(&self, host: u8) -> anyhow::Result<()> {
        self.cut(host)?;
        kill_all_in(&self.namespace(host));
        Ok(())
    }

    /// The processes on a host.
    pub fn processes(&self, host: u8) -> Vec<Pid> {
        processes_in(&self.namespace(host))
    }

    /// Gives what is started on a host from now on this part of one processor, as long as the group exists.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn limit_processor(&self, host: u8, percent: u32) -> anyhow::Result<ControlGroup> {
        let group = ControlGroup::new(Controller::Cpu, &self.namespace(host))?;
        group.limit(percent)?;
        Ok(group)
    }

    /// A group of what is started on a host from now on, by which it can be frozen.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn freezer(&self, host: u8) -> anyhow::Result<ControlGroup> {
        ControlGroup::new(Controller::Freezer, &self.namespace(host))
    }

    /// Undoes all cuts and changes of rates.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn heal(&self) -> anyhow::Result<()> {
        for change in std::mem::take(&mut *self.lock()) {
            match change {
                Change::Cut(host) => self.mend(host)?,
                Change::OneWay(from, to) => self.change_rule("del", from, to)?,
                Change::Rate(host) => self.shape(host, Direction::Both, self.mbit)?,
            }
        }
        Ok(())
    }

    /// The namespace that has the other hosts' addresses for the one that is relayed.
    pub(crate) fn towards_relayed(&self) -> String {
        format!("{}-r", self.prefix())
    }

    /// The namespace that has the relayed host's address for the others.
    pub(crate) fn outside_relayed(&self) -> String {
        format!("{}-o", self.prefix())
    }

    fn outer(&self, host: u8) -> String {
        match self.relayed == Some(host) {
            true => self.outside_relayed(),
            false => self.namespace(host),
        }
    }

    fn set_port_state(&self, host: u8, state: u8) -> anyhow::Result<()> {
        execute(
            "bridge",
            &format!("link set dev {} state {state}", self.link(host)),
        )
    }

    fn change_rule(&self, verb: &str, from: u8, to: u8) -> anyhow::Result<()> {
        let (namespace, address) = (self.outer(to), self.address(from));
        ip(&format!(
            "-n {namespace} rule {verb} pref {PREF_OF_CUTS} from {address} iif eth0 blackhole"
        ))
    }

    fn note(&self, change: Change) {
        self.lock().push(change);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Change>> {
        self.changes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn prefix(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }

    fn bridge(&self) -> String {
        format!("{}-b", self.prefix())
    }

    fn link(&self, host: u8) -> String {
        format!("{}-{host}", self.prefix())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let own = format!("{}-", self.prefix());
        for namespace in namespaces().iter().filter(|name| name.starts_with(&own)) {
            namespace::remove(namespace);
        }
        // Links go with their namespaces, but later: another network may have their names before.
        for interface in interfaces().iter().filter(|name| name.starts_with(&own)) {
            let _ = ip(&format!("link del {interface}"));
        }
        let _ = fs::remove_dir_all(folder(&self.id));
    }
}

/// Names of interfaces have at most 15 characters: these two, a process number in base 16, and three more.
const PREFIX: &str = "rx";
const STANDING: &str = "up";
/// The last part of the address of host 0.
const FIRST_ADDRESS: u8 = 10;
const PREF_OF_CUTS: u32 = 10;
const PORT_DISABLED: u8 = 0;
const PORT_FORWARDING: u8 = 3;

fn process_name() -> String {
    format!("{:x}", process::id())
}

fn folder(id: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{id}-hosts"))
}

/// As the design's measurements have it.
fn shape(mbit: u32) -> String {
    format!(
        "tbf rate {mbit}mbit burst {} limit {}",
        crate::flow::BURST,
        2 << 20
    )
}
