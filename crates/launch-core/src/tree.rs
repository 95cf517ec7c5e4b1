//! The tree of a job: the launcher is its root, every other node the agent of a host.

use std::ops::Range;

use ropewalk_names::{HostId, Identity, Incarnation, Rank, Role};
use serde::{Deserialize, Serialize};

/// A place in the tree: 0 is the launcher, `n` the agent of host `n - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The launcher.
    pub const ROOT: Self = Self(0);

    /// The agent of a host.
    pub fn of(host: HostId) -> Self {
        Self(host.0.saturating_add(1))
    }

    /// The identity that the node proves when it connects.
    pub fn identity(self) -> Identity {
        let (role, number) = match self.host() {
            Some(host) => (Role::Agent, host.0),
            None => (Role::Launcher, 0),
        };
        Identity {
            role,
            rank: Rank(number),
            incarnation: Incarnation(0),
        }
    }

    /// The host whose agent this is; `None` for the launcher.
    pub fn host(self) -> Option<HostId> {
        self.0.checked_sub(1).map(HostId)
    }
}

/// A complete tree, filled level by level, so that every node can reckon every other's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    hosts: u32,
    arity: u32,
}

impl Tree {
    /// A tree over so many hosts in which every node has at most `arity` children. An arity of 0 is taken for 1.
    pub fn new(hosts: u32, arity: u32) -> Self {
        let arity = arity.max(1);
        Self { hosts, arity }
    }

    /// Returns true if there is one host only.
    pub(crate) fn is_single(self) -> bool {
        self.hosts == 1
    }

    /// The nodes right below this one.
    pub fn children(self, node: NodeId) -> Range<u32> {
        let first = u64::from(node.0) * u64::from(self.arity) + 1;
        let end = u64::from(self.hosts) + 1;
        let limit = |number: u64| u32::try_from(number.min(end)).unwrap_or(u32::MAX);
        limit(first)..limit(first + u64::from(self.arity))
    }

    /// The node right above this one; `None` for the root.
    pub fn parent(self, node: NodeId) -> Option<NodeId> {
        Some(NodeId(node.0.checked_sub(1)? / self.arity))
    }

    /// The hosts of this node and of all below it, in order of their numbers.
    pub(crate) fn hosts_below(self, node: NodeId) -> Vec<HostId> {
        let mut level = node.0..node.0 + 1;
        let mut hosts = Vec::new();
        while !level.is_empty() {
            hosts.extend(level.clone().filter_map(|number| NodeId(number).host()));
            let last = NodeId(level.end - 1);
            level = self.children(NodeId(level.start)).start..self.children(last).end;
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Parents and children agree, every host is below the root exactly once, and the way up leads there.
        #[test]
        fn the_tree_is_one(hosts in 0u32..300, arity in 1u32..20) {
            let tree = Tree::new(hosts, arity);
            let mut seen = 0;
            for node in (0..=hosts).map(NodeId) {
                for child in tree.children(node).map(NodeId) {
                    seen += 1;
                    prop_assert_eq!(tree.parent(child), Some(node));
                    prop_assert!(tree.hosts_below(node).contains(&child.host().unwrap()));
                }
                let mut step = node;
                for _ in 0..node.0 {
                    step = tree.parent(step).unwrap_or(step);
                }
                prop_assert_eq!(step, NodeId::ROOT);
            }
            prop_assert_eq!(seen, hosts);
            prop_assert_eq!(tree.hosts_below(NodeId::ROOT), (0..hosts).map(HostId).collect::<Vec<_>>());
        }
    }
}
