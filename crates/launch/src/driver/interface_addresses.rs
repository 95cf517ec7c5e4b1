//! The addresses of this machine's network interfaces.

use std::{io, net::IpAddr};

/// The addresses of this machine, each with the name of its interface, in the system's order; those of one link only
/// (IPv6, `fe80::`) are left out.
///
/// # Errors
/// If the system does not tell them.
pub fn interface_addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let is_of_one_link =
        |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let all = if_addrs::get_if_addrs()?.into_iter();
    let named = all.map(|interface| (interface.name.clone(), interface.ip()));
    Ok(named.filter(|(_, address)| !is_of_one_link(address)).collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Every machine has the interface `lo` with the address of itself.
    #[test]
    fn loopback_is_an_interface() {
        let addresses = interface_addresses().unwrap();
        let loopback = ("lo".to_owned(), Ipv4Addr::LOCALHOST.into());
        assert!(addresses.contains(&loopback), "{addresses:?}");
    }
}
