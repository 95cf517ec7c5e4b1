//! Memory of ranks that are gone, which the agents of their hosts serve for others.

use std::collections::BTreeSet;

use ropewalk_names::HostId;

use super::ground::Ground;
use crate::protocol::Order;

/// Hosts that serve memory of ranks that are gone, and wait to hear that nobody needs it any more.
#[derive(Debug, Default)]
pub(super) struct ServedMemory(BTreeSet<HostId>);

impl ServedMemory {
    pub(super) fn note(&mut self, host: HostId) {
        self.0.insert(host);
    }

    /// Once no host has ranks any more, or will have, nobody needs what the agents serve: they need not stay for that.
    pub(super) fn release_if_all_are_closed(&mut self, ground: &mut Ground) {
        if !ground.hosts.iter().all(|host| host.is_closed || host.is_over) {
            return;
        }
        for host in std::mem::take(&mut self.0) {
            if !ground.host(host).is_over {
                ground.order(host, Order::ReleaseMemory);
            }
        }
    }
}
