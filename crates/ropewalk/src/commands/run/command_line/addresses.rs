//! Addresses among the words of a command.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, bail};
use ropewalk::launch::interface_addresses;

/// An address with a port, or a port alone for the programs of this host.
pub(super) fn metrics_address(text: &str) -> anyhow::Result<SocketAddr> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    let address = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    address.or_else(|_| {
        text.parse()
            .with_context(|| format!("option --metrics wants ADDRESS:PORT or a port, not {text:?}"))
    })
}

/// An address, or that of an interface; of several the first of the older protocol, which all hosts speak.
pub(super) fn interface_address(text: &str) -> anyhow::Result<IpAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let all = interface_addresses().context("cannot list this machine's interfaces")?;
    let its = all.iter().filter(|(name, _)| name == text);
    match its.min_by_key(|(_, address)| address.is_ipv6()) {
        Some((_, address)) => Ok(*address),
        None => {
            let mut names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
            names.dedup();
            bail!(
                "option -iface wants an address of this machine or an interface with one, not {text:?}; there are {}",
                names.join(", ")
            )
        }
    }
}
