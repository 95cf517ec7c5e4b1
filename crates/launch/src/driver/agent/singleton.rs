//! A process that nobody started, and that had its process manager started to serve it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::OwnedFd,
    time::Duration,
};

use ropewalk_fabric::AgentLink;
use ropewalk_launch_core::{Singleton, protocol::StartError};
use ropewalk_names::Rank;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{
    rank_io::{RankIo, Sockets},
    starting::system_error,
};

/// Connects to the process, which waits for that on the loopback interface.
pub(super) fn adopt(rank: Rank, singleton: Singleton, patience: Duration) -> Result<RankIo, StartError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, singleton.port));
    let pmi = TcpStream::connect_timeout(&address, patience).map_err(unreachable)?;
    pmi.set_nodelay(true).map_err(unreachable)?;
    let pmi = OwnedFd::from(pmi);
    let pid = i32::try_from(singleton.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| unreachable(io::ErrorKind::InvalidInput.into()))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| unreachable(errno.into()))?;
    // It has no link to an agent; this one has no other end.
    let (link, _) = AgentLink::pair().map_err(|error| unreachable(io::Error::other(error)))?;
    Ok(RankIo {
        rank,
        pid,
        foreign: Some(pidfd),
        was_killed: false,
        sockets: Some(Sockets::new(pmi, link)),
        outputs: [None, None],
    })
}

/// The process cannot be served.
pub(super) fn unreachable(error: io::Error) -> StartError {
    system_error("cannot reach the process that wants to be served", &error)
}
