//! Memory of ranks that are gone, which the agents of their hosts serve for others.

use super::{Action, Supervisor};
use crate::{
    protocol::{Down, Order},
    tree::NodeId,
};

impl Supervisor {
    /// Once no host has ranks any more, or will have, nobody needs what the agents serve: they need not stay for that.
    pub(super) fn release_memory_if_all_are_closed(&mut self) {
        if !self.hosts.iter().all(|host| host.is_closed || host.is_over) {
            return;
        }
        for host in std::mem::take(&mut self.serving) {
            if !self.hosts[host.0 as usize].is_over {
                let release = Down::To(NodeId::of(host), Order::ReleaseMemory);
                self.actions.push_back(Action::Send(release));
            }
        }
    }
}
