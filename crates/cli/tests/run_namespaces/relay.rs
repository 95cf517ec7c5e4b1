//! Two hosts between which every connection goes through a relay that does to it what bad networks do.

use std::{
    fs::{self, File},
    net::{TcpListener, TcpStream},
    os::{fd::AsFd, unix::fs::PermissionsExt},
    process::Command,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

pub(crate) use ropewalk_rig::Weather;
use ropewalk_rig::{Count, carry, reset};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{ROPEWALK, network::ip};

/// The ports on which the launcher may listen, and so the relay.
const PORTS: std::ops::RangeInclusive<u16> = 40_000..=40_007;

/// The launcher's host, the agent's, and between them a third that has the launcher's address towards the agent.
pub(crate) struct Relay {
    suffix: String,
    subnet: u8,
    folder: tempfile::TempDir,
    pub(crate) count: Arc<Count>,
    listener: Option<JoinHandle<()>>,
}

impl Relay {
    /// `None` without the right to make one.
    pub(crate) fn new(subnet: u8, weather: Weather) -> Option<Self> {
        let mut relay = Self {
            suffix: format!("{:x}{subnet}", std::process::id() & 0xffff),
            subnet,
            folder: tempfile::tempdir().unwrap(),
            count: Arc::default(),
            listener: None,
        };
        let [launcher, between, agent] = ["a", "m", "b"].map(|which| relay.namespace(which));
        if !ip(&format!("netns add {launcher}")) {
            eprintln!("skipped: this test makes network namespaces, for which it needs root and iproute2");
            return None;
        }
        for namespace in [&between, &agent] {
            assert!(ip(&format!("netns add {namespace}")));
        }
        // The launcher's interface leads nowhere; its connections come from its own host.
        assert!(ip(&format!(
            "-n {launcher} link add eth0 type veth peer name eth1"
        )));
        assert!(ip(&format!(
            "-n {between} link add eth0 type veth peer name eth0 netns {agent}"
        )));
        let addresses = [(&launcher, 1), (&between, 1), (&agent, 2)];
        for (namespace, number) in addresses {
            let address = relay.address(number);
            assert!(ip(&format!("-n {namespace} addr add {address}/24 dev eth0")));
            assert!(ip(&format!("-n {namespace} link set eth0 up")));
            assert!(ip(&format!("-n {namespace} link set lo up")));
        }
        assert!(ip(&format!("-n {launcher} link set eth1 up")));
        let range = format!("{} {}", PORTS.start(), PORTS.end());
        within(&launcher, move || {
            fs::write("/proc/sys/net/ipv4/ip_local_port_range", range).unwrap();
        });
        let script = format!("#!/bin/sh\nshift\nexec ip netns exec {agent} \"$@\"\n");
        fs::write(relay.command(), script).unwrap();
        fs::set_permissions(relay.command(), fs::Permissions::from_mode(0o755)).unwrap();
        relay.listener = Some(relay.listen(weather));
        Some(relay)
    }

    fn namespace(&self, which: &str) -> String {
        format!("rwr{}-{which}", self.suffix)
    }

    fn address(&self, number: u8) -> String {
        format!("10.214.{}.{number}", self.subnet)
    }

    fn command(&self) -> String {
        self.folder.path().join("like-rsh").to_str().unwrap().to_owned()
    }

    /// A job on the agent's host, with a launcher on its own.
    pub(crate) fn job(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace("a")))
            .args([ROPEWALK, "run", "-launcher-exec", &self.command()])
            .args(["--detect", "1", "-hosts", &self.address(2)])
            .args(words);
        command
    }

    fn listen(&self, weather: Weather) -> JoinHandle<()> {
        let (address, count) = (self.address(1), self.count.clone());
        let (launcher, between) = (self.namespace("a"), self.namespace("m"));
        let bound = address.clone();
        let listeners: Vec<_> = within(&between, move || {
            PORTS
                .map(|port| TcpListener::bind((bound.as_str(), port)).unwrap())
                .collect()
        });
        thread::spawn(move || {
            let mut connections = Vec::new();
            while !count.is_over.load(Ordering::Relaxed) {
                let ended =
                    weather.end_after.is_some_and(|after| count.bytes() >= after) || count.is_out(weather);
                for (listener, port) in listeners.iter().zip(PORTS) {
                    listener.set_nonblocking(true).unwrap();
                    let Ok((agent, _)) = listener.accept() else {
                        continue;
                    };
                    if ended {
                        count.turned_away.fetch_add(1, Ordering::Relaxed);
                        reset(&agent);
                        continue;
                    }
                    let connection = count.connections.fetch_add(1, Ordering::Relaxed);
                    if connection > 0 {
                        sleep(weather.dial_delay);
                    }
                    let address = address.clone();
                    let dialed = within(&launcher, move || TcpStream::connect((address, port)));
                    let Ok(launcher) = dialed else {
                        reset(&agent);
                        continue;
                    };
                    agent.set_nonblocking(false).unwrap();
                    for (way, from, to) in [(0, &agent, &launcher), (1, &launcher, &agent)] {
                        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                        let count = count.clone();
                        connections.push(thread::spawn(move || carry(way, from, to, weather, &count)));
                    }
                }
                sleep(Duration::from_millis(1));
            }
            for connection in connections {
                connection.join().unwrap();
            }
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.count.is_over.store(true, Ordering::Relaxed);
        let listened = self.listener.take().map(JoinHandle::join);
        for which in ["a", "m", "b"] {
            ip(&format!("netns del {}", self.namespace(which)));
        }
        if let Some(Err(panic)) = listened
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Does something in a namespace.
fn within<T: Send + 'static>(namespace: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = File::open(format!("/run/netns/{namespace}")).unwrap();
    let work = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    thread::spawn(work).join().unwrap()
}
