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
use rustix::{
    event::epoll::EventFlags,
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::{
    Agent,
    children::monotonic_ns,
    poller::{Channel, Source},
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
        let source = Source::Rank(index, Channel::Pmi);
        self.pollers
            .all
            .add(&pmi, source, EventFlags::IN)
            .map_err(failed)?;
        self.ranks.ios[index] = Some(RankIo {
            rank,
            pid,
            foreign: Some(pidfd),
            was_killed: false,
            sockets: Some(Sockets::new(pmi, link)),
            outputs: [None, None],
        });
        Ok(singleton.pid)
    }

    /// Returns true if the process of a rank is not our child.
    pub(super) fn is_foreign(&self, index: usize) -> bool {
        let io = self.ranks.ios.get(index).and_then(Option::as_ref);
        io.is_some_and(|io| io.foreign.is_some())
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
