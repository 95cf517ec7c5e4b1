//! Starting the agents right below.

use std::io;

use rustix::event::epoll;

use super::{Branch, LIFE_LINE, PIDFD, Position, STDERR};
use crate::{driver::starter::Starter, protocol::Bootstrap, tree::NodeId};

impl Branch {
    pub(super) fn start_child(&mut self, node: NodeId) -> io::Result<Starter> {
        let Position {
            key,
            plan,
            encoded_plan,
            launcher,
            forked,
            ..
        } = &mut self.position;
        let own = self.endpoint.address();
        let bootstrap = Bootstrap {
            key: key.clone(),
            node,
            parent: own.clone(),
            launcher: launcher.as_ref().unwrap_or(own).clone(),
            plan: encoded_plan.clone(),
        };
        let mut frame = postcard::to_extend(&bootstrap, vec![0; 4]).map_err(io::Error::other)?;
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        let host = node.host().and_then(|host| plan.hosts.get(host.0 as usize));
        let host = host.ok_or_else(|| io::Error::other("there is no such host"))?;
        let forked = forked.take_if(|_| host.is_local);
        let mut starter = Starter::start(plan, host, forked, frame)?;
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
}
