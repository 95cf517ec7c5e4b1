//! The addresses of this machine's network interfaces.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The name of its interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// So many of its first bits are those of its network.
    pub prefix_bits: u8,
}

/// The addresses of this machine in the system's order; those of one link only (IPv6, `fe80::`) are left out.
///
/// # Errors
/// If the system does not tell them.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let is_of_one_link =
        |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    let all = if_addrs::get_if_addrs()?
        .into_iter()
        .map(|found| InterfaceAddress {
            address: found.ip(),
            prefix_bits: match &found.addr {
                if_addrs::IfAddr::V4(address) => address.prefixlen,
                if_addrs::IfAddr::V6(address) => address.prefixlen,
            },
            interface: found.name,
        });
    Ok(all.filter(|found| !is_of_one_link(&found.address)).collect())
}

/// The own address from which packets to another one would go. None is sent.
///
/// # Errors
/// If no way leads there.
pub fn address_towards(other: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every machine has the interface `lo` with the address of itself.
    #[test]
    fn loopback_is_an_interface() {
        let addresses = interface_addresses().unwrap();
        let loopback = InterfaceAddress {
            interface: "lo".to_owned(),
            address: Ipv4Addr::LOCALHOST.into(),
            prefix_bits: 8,
        };
        assert!(addresses.contains(&loopback), "{addresses:?}");
    }

    /// The way to an own address is that address.
    #[test]
    fn the_way_to_loopback_is_loopback() {
        let address = "127.0.0.1:9".parse().unwrap();
        assert_eq!(
            address_towards(address).unwrap(),
            IpAddr::from(Ipv4Addr::LOCALHOST)
        );
    }
}
