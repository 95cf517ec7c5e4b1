//! The network among the hosts of a job, and its name server.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use anyhow::{Context, bail};
use ropewalk_fabric::interface_addresses;
use ropewalk_launch::{NameServerAccess, NameServerKey, RankNetwork};

use super::{Surroundings, given::Given};
use crate::nameserver::{default_key_file, server_address};

/// The network among the hosts, as the user names it.
#[derive(Default)]
pub(super) struct Network {
    pub(super) interface: Option<String>,
    pub(super) own_name: Option<String>,
    pub(super) propagates_names: Option<bool>,
}

impl Network {
    /// The address of this machine for the others; `None` where nobody said it, or nobody else is.
    pub(super) fn address(&self, launcher: Option<&str>, has_hosts: bool) -> anyhow::Result<Option<IpAddr>> {
        let named = self.interface.as_deref().map(interface_address).transpose()?;
        match (named, launcher) {
            _ if !has_hosts => Ok(None),
            (Some(address), _) => Ok(Some(address)),
            (None, Some("fork")) => Ok(Some(Ipv4Addr::LOCALHOST.into())),
            (None, _) => self.own_name.as_deref().map_or(Ok(None), own_address),
        }
    }

    pub(super) fn for_ranks(&self) -> RankNetwork {
        match self
            .interface
            .as_deref()
            .filter(|text| text.parse::<IpAddr>().is_err())
        {
            // Other hosts have other addresses, but their interfaces are called the same.
            Some(name) => RankNetwork::Interface(name.to_owned()),
            None if self.propagates_names == Some(false) => RankNetwork::Unsaid,
            None => RankNetwork::HostName,
        }
    }
}

/// The address behind `-localhost`.
fn own_address(name: &str) -> anyhow::Result<Option<IpAddr>> {
    if let Ok(address) = interface_address(name) {
        return Ok(Some(address));
    }
    let addresses = (name, 0).to_socket_addrs();
    let addresses = addresses
        .with_context(|| format!("option -localhost wants a name or address of this host, not {name:?}"))?;
    // Of several one of the older protocol, which all hosts speak.
    Ok(addresses.map(|address| address.ip()).min_by_key(IpAddr::is_ipv6))
}

/// An address, or that of an interface; of several the first of the older protocol, which all hosts speak.
fn interface_address(text: &str) -> anyhow::Result<IpAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let all = interface_addresses().context("cannot list this machine's interfaces")?;
    let its = all.iter().filter(|its| its.interface == text);
    if let Some(its) = its.min_by_key(|its| its.address.is_ipv6()) {
        return Ok(its.address);
    }
    let mut names: Vec<_> = all.iter().map(|its| its.interface.as_str()).collect();
    names.dedup();
    bail!(
        "option -iface wants an address of this machine or an interface with one, not {text:?}; there are {}",
        names.join(", ")
    )
}

/// The keeper of published names, if that is not the job itself.
#[derive(Default)]
pub(super) struct NameServer {
    pub(super) address: Option<String>,
    pub(super) key: Option<PathBuf>,
}

impl NameServer {
    pub(super) fn finish(self, around: &Surroundings<'_>) -> anyhow::Result<Option<NameServerAccess>> {
        let Some(text) = self.address else {
            if self.key.is_some() {
                bail!("option --nameserver-key goes with -nameserver HOST");
            }
            return Ok(None);
        };
        let path = self.key.or_else(|| default_key_file((around.variable)("HOME")));
        let path = path.context("option -nameserver needs --nameserver-key FILE where there is no HOME")?;
        let key = (around.read_key)(&path).with_context(|| {
            format!(
                "the key {} of the name server cannot be used (`ropewalk nameserver` makes it where it is started; \
                 jobs elsewhere need a copy, there or where --nameserver-key says)",
                path.display()
            )
        })?;
        let address = server_address(&text).context("option -nameserver")?;
        if address.port() == 0 {
            bail!(
                "option -nameserver wants the port that the server has, not 0: it prints it when it starts"
            );
        }
        Ok(Some(NameServerAccess {
            address,
            key: NameServerKey::from_bytes(*key.as_bytes()),
        }))
    }
}

/// The value of `--metrics`: an address with a port, or a port alone for the programs of this host.
pub(super) fn metrics_address(given: &mut Given<'_>) -> anyhow::Result<SocketAddr> {
    let text = given.text()?;
    match text.strip_prefix(':').unwrap_or(&text).parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text
            .parse()
            .with_context(|| format!("{given} wants ADDRESS:PORT or a port, not {text:?}")),
    }
}
