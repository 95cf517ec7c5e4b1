//! The messages of fences.

use ropewalk_launch_core::{
    batch::{Head, encode},
    protocol::{Down, Order, Report, Up},
    tree::NodeId,
};
use ropewalk_pmi as pmi;

use super::{Job, Programs};

/// The messages of fences from one node to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Job<'_> {
    /// Counts a message to the node above if it is of a fence. At the end of a job agents may find the one above them
    /// gone before they hear that they may go too, and say again to the launcher what it has, and it to them: that is
    /// no part of a fence.
    pub(super) fn count_up(&mut self, from: NodeId, to: NodeId, up: &Up) {
        let origin = NodeId::of(up.host);
        let is_of_fence = matches!(
            up.report,
            Report::Pmi(pmi::Up::Fence { .. } | pmi::Up::Pairs { .. })
        );
        if self.counts() && is_of_fence && self.processes.values().any(|process| process.node == origin) {
            let bytes = encode(Head::default(), std::slice::from_ref(up)).len();
            self.count((from, to), bytes);
        }
    }

    /// Counts a message to a node below, in the same way.
    pub(super) fn count_down(&mut self, from: NodeId, to: NodeId, down: &Down) {
        let is_of_fence = match down {
            Down::Pmi(down) | Down::To(_, Order::Pmi(down)) => {
                matches!(down, pmi::Down::Fence { .. } | pmi::Down::Pairs { .. })
            }
            _ => false,
        };
        if self.counts() && is_of_fence && !self.parents.contains_key(&to) {
            let bytes = encode(Head::default(), std::slice::from_ref(down)).len();
            self.count((from, to), bytes);
        }
    }

    fn counts(&self) -> bool {
        matches!(self.setting.programs, Programs::Fences { .. })
    }

    fn count(&mut self, way: (NodeId, NodeId), bytes: usize) {
        let traffic = self.outcome.fences.entry(way).or_default();
        traffic.messages += 1;
        traffic.bytes += bytes as u64;
    }
}
