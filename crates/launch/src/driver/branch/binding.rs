//! The endpoint of a node.

use std::io;

use ropewalk_fabric::{Address, Endpoint, EndpointOptions};
use ropewalk_launch_core::tree::NodeId;

use super::Position;
use crate::driver::interface;

/// Binds it, to an address of an interface if other hosts have to reach it.
pub(in crate::driver) fn bind(position: &Position) -> io::Result<Endpoint> {
    let Position {
        node,
        plan,
        key,
        parent,
        ..
    } = position;
    let address = match parent {
        None => interface::of_launcher(plan)?,
        // The launcher's interface is an agent's only on the same host.
        Some(_) if plan.network.interface.is_some() && plan.hosts.iter().all(|host| host.is_local) => {
            plan.network.interface
        }
        Some(parent) => interface::of_agent(parent)?,
    };
    let mut options = EndpointOptions::new(plan.job, key.clone(), node.identity());
    if let Some(address) = address {
        options.bind.set_ip(address);
    }
    options.encrypt = plan.network.encrypt;
    options.limits.heartbeat = Some(plan.detect);
    options.limits.connect_timeout = plan.detect;
    match *node {
        NodeId::ROOT => bind_launcher(options, address.is_none()),
        _ => bind_agent(options, parent.as_ref()),
    }
}

fn bind_launcher(mut options: EndpointOptions, is_local: bool) -> io::Result<Endpoint> {
    // The launcher moves nothing that shared memory would make faster.
    options.transports.shm = false;
    if is_local {
        // To choose a port costs more than all else that a link takes.
        let mut local = options.clone();
        local.transports.unix = true;
        if let Ok(endpoint) = Endpoint::bind(local) {
            return Ok(endpoint);
        }
        // Some sandboxes have no such sockets; a port serves this host too.
    }
    Endpoint::bind(options).map_err(io::Error::other)
}

fn bind_agent(mut options: EndpointOptions, parent: Option<&Address>) -> io::Result<Endpoint> {
    // What ranks are shown here is theirs, and lies elsewhere.
    options.limits.arena_size = 0;
    let endpoint = Endpoint::bind(options.clone()).map_err(io::Error::other)?;
    let mut providers = endpoint.providers().iter();
    let has_shm = providers.any(|known| known.name == "shm" && known.unavailable.is_none());
    if has_shm || parent.is_none_or(|parent| parent.provider() != "unix") {
        return Ok(endpoint);
    }
    // Somebody has the name that goes with the port. The node above is reached by UNIX sockets, and a name that is
    // drawn by lot nobody has.
    options.transports.tcp = false;
    Endpoint::bind(options).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpListener},
        os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixListener},
        },
    };

    use ropewalk_fabric::JobKey;
    use ropewalk_names::{HostId, JobId};

    use super::*;

    /// An agent whose name somebody else has taken reaches its launcher all the same.
    #[test]
    fn a_taken_name_keeps_no_agent_from_its_launcher() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let name = SocketAddr::from_abstract_name(format!("ropewalk/{address}")).unwrap();
        let _taken = UnixListener::bind_addr(&name).unwrap();
        let identity = NodeId::of(HostId(0)).identity();
        let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
        options.bind = address;
        let reached = |parent: &str| {
            let endpoint = bind_agent(options.clone(), Some(&parent.parse().unwrap())).unwrap();
            endpoint.address().provider().to_owned()
        };
        assert_eq!(reached("unix://launcher"), "shm");
        assert_eq!(reached("tcp://127.0.0.1:1"), "tcp");
    }
}
