//! Which of its own addresses a node gives to the others.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
};

use ropewalk_fabric::{Address, address_towards};
use ropewalk_launch_core::protocol::Plan;

/// Where the launcher listens: on the interface towards the first host that is not its own, unless the plan
/// names one. `None` if there is no such host, so that no other host need reach it.
pub(super) fn of_launcher(plan: &Plan) -> io::Result<Option<IpAddr>> {
    if plan.network.interface.is_some() {
        return Ok(plan.network.interface);
    }
    let Some(host) = plan.hosts.iter().find(|host| !host.is_local) else {
        return Ok(None);
    };
    let name = host.name.rsplit('@').next().unwrap_or(&host.name);
    let resolved = (name, ANY_PORT)
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next());
    let address = match resolved {
        Some(address) => address_towards(address),
        // A name that only the command knows which starts the agent. An address of documentation (RFC 5737) stands for
        // any that is not here.
        None => address_towards(SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), ANY_PORT))
            .or(Ok(Ipv4Addr::LOCALHOST.into())),
    };
    address.map(Some)
}

/// Where an agent listens: on the interface towards the node above it. `None` if only this host reaches that one.
pub(super) fn of_agent(parent: &Address) -> io::Result<Option<IpAddr>> {
    if matches!(parent.provider(), "unix" | "shm") {
        return Ok(None);
    }
    let address = match parent.location().parse() {
        Ok(address) => address_towards(address).map_err(|error| {
            io::Error::other(format!(
                "the node above cannot be reached at {address}: {error}; -iface tells the launcher's address for the \
                 other hosts"
            ))
        }),
        Err(_) => Err(io::Error::other(format!(
            "{parent} is no address of the node above"
        ))),
    };
    address.map(Some)
}

/// The discard service's; nothing is sent to it.
const ANY_PORT: u16 = 9;
