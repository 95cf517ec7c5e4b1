//! Sockets as this provider wants them: close-on-exec, non-blocking, prompt.

use std::{net::SocketAddr, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
        getpeername, getsockname, listen, socket_with, sockopt,
    },
    process::getuid,
};

use crate::{Address, poller::Source, provider::shm::Credentials};

/// The kind of sockets that a provider uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Tcp,
    Unix,
}

/// Where to connect to.
#[derive(Clone, Debug)]
pub(super) enum Location {
    Tcp(SocketAddr),
    Unix(SocketAddrUnix),
}

impl Family {
    /// Which part of an endpoint has sockets of this family.
    pub(super) fn source(self) -> Source {
        match self {
            Self::Tcp => Source::Tcp,
            Self::Unix => Source::Shm,
        }
    }

    /// The forms of address that sockets of this family reach.
    pub(super) fn reached(self) -> &'static str {
        match self {
            Self::Tcp => "tcp://IP:PORT",
            Self::Unix => "shm://NAME, unix://NAME or tcp://IP:PORT of this host",
        }
    }

    /// Where sockets of this family reach an address; `None` if they do not.
    pub(super) fn locate(self, address: &Address) -> Option<Location> {
        match (self, address.provider()) {
            (Self::Tcp, "tcp") => address.location().parse().ok().map(Location::Tcp),
            (Self::Unix, "tcp" | "shm" | "unix") => unix_name(address.location()).ok().map(Location::Unix),
            _ => None,
        }
    }
}

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: i32 = 1024;
// A peer's host that answers no probe of an idle connection is gone after 25 s; of one with data on its way, when
// the kernel gives up sending it again. A process that is stopped or does not read is never taken for gone: its
// kernel answers. (`TCP_USER_TIMEOUT` would, as it counts a closed window too.)
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

pub(super) fn tcp_listener(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = new_socket(&address)?;
    // A restarted process gets its address back at once.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// Listens where this host's processes look for the endpoint at `location`. The name is not of the file system
/// but of the network namespace, and ends with the listener.
pub(super) fn unix_listener(location: &str) -> Result<OwnedFd, Errno> {
    let socket = new_unix_socket()?;
    bind(&socket, &unix_name(location)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn unix_name(location: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(format!("ropewalk/{location}").as_bytes())
}

pub(super) fn accept(family: Family, listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let socket = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    if family == Family::Tcp {
        tune(&socket)?;
    }
    Ok(socket)
}

/// A socket that is connected, or is being connected: it becomes writable when the outcome is known.
pub(super) fn dial(location: &Location) -> Result<OwnedFd, Errno> {
    match location {
        Location::Tcp(address) => {
            let socket = new_socket(address)?;
            tune(&socket)?;
            match connect(&socket, address) {
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
                Err(errno) => Err(errno),
            }
        }
        Location::Unix(name) => {
            let socket = new_unix_socket()?;
            connect(&socket, name)?;
            // Anybody may take a name that is free; of other users there are no members of this job.
            let owner = Credentials::of_peer(&socket).map_err(|_| Errno::CONNREFUSED)?;
            if owner.user != getuid().as_raw() {
                return Err(Errno::CONNREFUSED);
            }
            Ok(socket)
        }
    }
}

/// The outcome of [`dial`]: whether it is known, and connected.
pub(super) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(socket)??;
    if sockopt::socket_domain(socket)? == AddressFamily::UNIX {
        return Ok(true);
    }
    let peer: Option<SocketAddrAny> = match getpeername(socket) {
        Err(Errno::NOTCONN) => return Ok(false),
        other => other?,
    };
    // Where nobody listens, the kernel may have picked that very port for our side and joined us with
    // ourselves.
    if peer == Some(getsockname(socket)?) {
        return Err(Errno::CONNREFUSED);
    }
    Ok(true)
}

fn new_socket(address: &SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

pub(super) fn new_unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn tune(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    probe_each(socket, Duration::MAX)
}

/// Has the peer's host probed more often than it otherwise is, whole seconds apart.
pub(super) fn probe_each(socket: &OwnedFd, interval: Duration) -> Result<(), Errno> {
    sockopt::set_tcp_keepintvl(socket, interval.min(KEEPALIVE_INTERVAL))?;
    sockopt::set_tcp_keepidle(socket, interval.min(KEEPALIVE_IDLE))
}
