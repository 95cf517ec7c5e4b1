//! The hosts of a job, as users and batch systems name them.

mod host_file;
mod slurm;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use host_file::parse_host_file;
pub use slurm::{parse_node_list, parse_tasks_per_node, slurm_hosts};

/// How many entries a list of hosts may have.
pub const HOSTS_MAX: usize = 1 << 16;
/// The longest name of a host, in bytes (RFC 1035 has 255), with a user before it.
const NAME_SIZE_MAX: usize = 320;

/// A host, and how many ranks it takes before the next one's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSlots {
    name: String,
    /// How many ranks it takes in one turn.
    pub slots: u32,
    /// How many ranks it takes in all; any number if `None`.
    pub slots_max: Option<u32>,
}

/// Why a list of hosts is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HostError {
    /// A line or entry that is in no known form.
    #[error(
        "line {line} of the host file is not understood: {text:?}; write HOST, HOST:SLOTS or HOST slots=N"
    )]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its text.
        text: String,
    },
    /// A name that no host has, or that a command could take for an option.
    #[error(
        "{name:?} is no name of a host: expected letters, digits and `.-_:%@[]`, and no `-` at the beginning"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A list as Slurm writes it that is malformed.
    #[error("{text:?} is not a list of nodes as Slurm writes it: {reason}")]
    NodeList {
        /// The list.
        text: String,
        /// The reason.
        reason: &'static str,
    },
    /// A number of slots that is none.
    #[error("{text:?} is no number of ranks for host {host}: expected 1 or more")]
    Slots {
        /// The host.
        host: String,
        /// The text in place of the number.
        text: String,
    },
    /// More entries than a job may have.
    #[error("the list names more than {HOSTS_MAX} hosts")]
    TooMany,
}

impl HostSlots {
    /// A host that takes so many ranks in one turn.
    ///
    /// # Errors
    /// If no host can have this name. Names that begin with `-` are refused: ssh would take them for options.
    pub fn new(name: impl Into<String>, slots: u32) -> Result<Self, HostError> {
        let name = name.into();
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%@[]".contains(&byte);
        let host = name.rsplit('@').next().unwrap_or_default();
        let is_option = name.starts_with('-') || host.starts_with('-');
        if host.is_empty() || is_option || name.len() > NAME_SIZE_MAX || !name.bytes().all(is_known) {
            return Err(HostError::Name { name });
        }
        Ok(Self {
            name,
            slots,
            slots_max: None,
        })
    }

    /// Its name or address, with a user before an `@` if there is one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// From `HOST` or `HOST:SLOTS`, as Hydra has it. An IPv6 address with slots stands in brackets.
    fn parse(text: &str) -> Result<Self, HostError> {
        let (name, slots) = match text.rsplit_once(':') {
            Some((name, slots)) if !name.contains(':') || name.ends_with(']') => (name, Some(slots)),
            _ => (text, None),
        };
        let name = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let slots = slots.map_or(Ok(1), |slots| parse_slots(name, slots))?;
        Self::new(name, slots)
    }
}

/// Reads a list such as `h1,h2:4` (mpiexec's `-hosts`).
///
/// # Errors
/// If a name or a number in it is none, or there are too many.
pub fn parse_hosts(text: &str) -> Result<Vec<HostSlots>, HostError> {
    let mut hosts = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        push(&mut hosts, HostSlots::parse(entry)?)?;
    }
    Ok(hosts)
}

/// The slots of all hosts: more than can be counted are as many as can.
pub fn total_slots(hosts: &[HostSlots]) -> u32 {
    let slots = hosts.iter().map(|host| host.slots);
    slots.fold(0, u32::saturating_add)
}

fn push(hosts: &mut Vec<HostSlots>, host: HostSlots) -> Result<(), HostError> {
    if hosts.len() == HOSTS_MAX {
        return Err(HostError::TooMany);
    }
    hosts.push(host);
    Ok(())
}

fn parse_slots(host: &str, text: &str) -> Result<u32, HostError> {
    match text.parse() {
        Ok(slots @ 1..) => Ok(slots),
        _ => Err(HostError::Slots {
            host: host.to_owned(),
            text: text.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Hosts named `-oProxyCommand=...` are refused", and so is what a shell could take for more than a name.
    #[test]
    fn names_that_are_options_or_commands_are_refused() {
        for name in [
            "-oProxyCommand=id",
            "root@-oProxyCommand",
            "a;b",
            "a b",
            "$(id)",
            "",
            "a@",
        ] {
            let refused = HostSlots::new(name, 1);
            assert_eq!(
                refused,
                Err(HostError::Name {
                    name: name.to_owned()
                })
            );
        }
        assert_eq!(
            HostSlots::new("user@node-1.example", 1).unwrap().name(),
            "user@node-1.example"
        );
    }

    /// Names with and without slots, addresses of both kinds.
    #[test]
    fn hydra_lists_are_read() {
        let hosts = parse_hosts("h1,h2:3, [fe80::1%eth0]:2,fe80::2").unwrap();
        let seen: Vec<_> = hosts.iter().map(|host| (host.name(), host.slots)).collect();
        assert_eq!(seen, [("h1", 1), ("h2", 3), ("fe80::1%eth0", 2), ("fe80::2", 1)]);
        assert!(matches!(parse_hosts("h1:0"), Err(HostError::Slots { .. })));
        assert!(matches!(parse_hosts("h1:x"), Err(HostError::Slots { .. })));
    }
}
