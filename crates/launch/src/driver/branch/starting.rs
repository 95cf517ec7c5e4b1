//! Starting the agents right below.

use std::{io, rc::Rc};

use ropewalk_launch_core::tree::NodeId;
use ropewalk_names::HostId;
use rustix::event::epoll;

use super::{Branch, LIFE_LINE, PIDFD, STDERR};
use crate::driver::{command_keeper::CommandKeeper, starter::Starter};

impl Branch {
    pub(super) fn start_child(&mut self, node: NodeId) -> io::Result<Starter> {
        let forked = self.position.forked.take_if(|_| node == NodeId::of(HostId(0)));
        let mut starter = match forked {
            Some(agent) => Starter::of_fork(&self.position.plan, agent)?,
            None => self.start_process(node)?,
        };
        let has_unsent = starter.write();
        let data = |kind| epoll::EventData::new_u64(u64::from(node.0) << 2 | kind);
        epoll::add(&self.poller, starter.pidfd(), data(PIDFD), epoll::EventFlags::IN)?;
        if let Some(life_line) = starter.life_line().filter(|_| has_unsent) {
            epoll::add(&self.poller, life_line, data(LIFE_LINE), epoll::EventFlags::OUT)?;
        }
        if let Some(stderr) = starter.stderr() {
            epoll::add(&self.poller, stderr, data(STDERR), epoll::EventFlags::IN)?;
        }
        Ok(starter)
    }

    fn start_process(&mut self, node: NodeId) -> io::Result<Starter> {
        let plan = &self.position.plan;
        let host = node.host().and_then(|host| plan.hosts.get(host.0 as usize));
        let host = host.ok_or_else(|| io::Error::other("there is no such host"))?;
        let bootstrap = self.position.bootstrap(node, self.endpoint.address());
        let mut frame = postcard::to_extend(&bootstrap, vec![0; 4]).map_err(io::Error::other)?;
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        // Agents do not: their keepers end the commands that they leave behind.
        if self.position.forks && !host.is_local && self.command_keeper.is_none() {
            // Failing that, the job goes on without: it is needed only if the launcher is killed while a command hangs.
            self.command_keeper = CommandKeeper::fork(plan.hosts.len()).ok().map(Rc::new);
        }
        let keeper = self.command_keeper.as_ref().filter(|_| !host.is_local);
        Starter::start(plan, host, frame, keeper)
    }
}
