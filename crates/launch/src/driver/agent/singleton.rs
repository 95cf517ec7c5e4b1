//! A process that nobody started, and that had its process manager started to serve it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::OwnedFd,
};

use ropewalk_fabric::AgentLink;
use ropewalk_launch_core::{Singleton, protocol::StartError};
use ropewalk_membership::Cause;
use ropewalk_names::Rank;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{
    Agent,
    children::monotonic_ns,
    rank_io::{RankIo, Sockets},
    starting::system_error,
};

impl Agent {
    /// Connects to the process, which waits for that on the loopback interface.
    pub(super) fn adopt(&mut self, rank: Rank, singleton: Singleton) -> Result<u32, StartError> {
        let failed =
            |error: io::Error| system_error("cannot reach the process that wants to be served", &error);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, singleton.port));
        let pmi = TcpStream::connect_timeout(&address, self.plan.detect).map_err(failed)?;
        pmi.set_nodelay(true).map_err(failed)?;
        let pmi = OwnedFd::from(pmi);
        let pid = i32::try_from(singleton.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        // It has no link to an agent; this one has no other end.
        let (link, _) = AgentLink::pair().map_err(|error| failed(io::Error::other(error)))?;
        let index = self.ranks.indices.get(&rank).copied().unwrap_or_default();
        let io = RankIo {
            rank,
            pid,
            foreign: Some(pidfd),
            was_killed: false,
            sockets: Some(Sockets::new(pmi, link)),
            outputs: [None, None],
        };
        self.ranks
            .insert(index, io, &self.poller, &self.outputs)
            .map_err(failed)?;
        Ok(singleton.pid)
    }

    /// Of a process that is not our child the end of its connection is all that is seen.
    pub(super) fn end_if_foreign(&mut self, index: usize) {
        let Some(io) = self.ranks.ios.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if io.foreign.is_some() && io.sockets.is_some() {
            let rank = io.rank;
            self.mind
                .handle_exit(rank, Cause::Exited(0), None, monotonic_ns());
            self.settle();
            self.ranks.ios[index] = None;
        }
    }
}
