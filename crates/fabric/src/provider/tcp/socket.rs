//! Sockets as this provider wants them: close-on-exec, non-blocking, prompt.

use std::{net::SocketAddr, os::fd::OwnedFd, time::Duration};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrAny, SocketFlags, SocketType, accept_with, bind, connect, getpeername,
        getsockname, listen, socket_with, sockopt,
    },
};

/// Connections that the kernel holds for us until they are accepted.
const BACKLOG: i32 = 1024;
// A peer's host that answers no probe of an idle connection is gone after 25 s; of one with data on its way, when
// the kernel gives up sending it again. A process that is stopped or does not read is never taken for gone: its
// kernel answers. (`TCP_USER_TIMEOUT` would, as it counts a closed window too.)
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

pub(super) fn listener(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), Errno> {
    let socket = new_socket(&address)?;
    // A restarted process gets its address back at once.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

pub(super) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    let socket = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    tune(&socket)?;
    Ok(socket)
}

/// A socket that is connected, or is being connected: it becomes writable when the outcome is known.
pub(super) fn dial(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = new_socket(&address)?;
    tune(&socket)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// The outcome of [`dial`]: whether it is known, and connected.
pub(super) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    sockopt::socket_error(socket)??;
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

fn tune(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)
}
