//! The names by which others may ask for this machine.

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
};

/// The names of this machine, in small letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnNames(Vec<String>);

impl OwnNames {
    /// Reads the host name, the names beside it in `/etc/hosts`, and the domains in which this machine looks for names.
    pub(super) fn of_this_machine() -> Self {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // They may not be there, or not be text.
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let resolver = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
        Self::of(&name, &hosts, &resolver)
    }

    fn of(host_name: &str, hosts: &str, resolver: &str) -> Self {
        let full = host_name.trim().to_ascii_lowercase();
        let Some(short) = full.split('.').next().filter(|short| !short.is_empty()) else {
            return Self::default();
        };
        let mut names = vec![short.to_owned(), full.clone()];
        for line in hosts.lines() {
            let line = line.split('#').next().unwrap_or_default().to_ascii_lowercase();
            let of_line: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
            if of_line.iter().any(|&name| name == short || name == full) {
                names.extend(of_line.into_iter().map(str::to_owned));
            }
        }
        for line in resolver.lines() {
            let mut words = line.split_ascii_whitespace();
            if let Some("domain" | "search") = words.next() {
                names.extend(words.map(|domain| format!("{short}.{}", domain.to_ascii_lowercase())));
            }
        }
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// True if a `Host` of HTTP, with or without a port, is this machine. A literal address is always taken for it:
    /// whoever has it in a page's address got the page from there.
    pub(super) fn has(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else {
            return false;
        };
        if let Some((address, port)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
            return is_port && address.parse::<Ipv6Addr>().is_ok();
        }
        let host = match host.split_once(':') {
            Some((host, port)) if is_number(port) => host,
            Some(_) => return false,
            None => host,
        };
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        name == "localhost" || host.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }
}

/// A port, which may be left out after its colon.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine has its host name with and without a domain, and the names beside it in the table of hosts.
    #[test]
    fn names_of_this_machine_are_its_own() {
        let hosts =
            "127.0.0.1 localhost\n10.0.0.7 node7.cluster.example node7 login # node8\n10.0.0.8 other\n";
        let names = OwnNames::of(
            "Node7\n",
            hosts,
            "nameserver 10.0.0.1\nsearch a.example B.example\n",
        );
        for own in [
            "node7",
            "NODE7:9090",
            "node7.cluster.example",
            "login.",
            "node7.b.example",
            "localhost:80",
            "LocalHost",
            "127.0.0.1:9090",
            "10.1.2.3",
            "[::1]:9090",
            "[fe80::1]",
            "node7:",
        ] {
            assert!(names.has(own.as_bytes()), "{own}");
        }
        for foreign in [
            "",
            "other",
            "node8",
            "evil.example",
            "node7.evil.example",
            "b.example",
            "other.b.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "node7:x",
            "[::1",
            "[node7]",
            "::1",
            "10.0.0",
            "[::1]x",
        ] {
            assert!(!names.has(foreign.as_bytes()), "{foreign}");
        }
        assert!(!names.has(b"\xff"));
        let named = OwnNames::of("node7.cluster.example", "", "");
        assert!(named.has(b"node7") && named.has(b"node7.cluster.example"));
        assert_eq!(OwnNames::of("\n", hosts, ""), OwnNames::default());
    }
}
