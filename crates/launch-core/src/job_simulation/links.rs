//! What is under way between the nodes of a simulated job, over the same links as in a real one.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::World;
use crate::{
    link::Link,
    protocol::{Down, Report, Up},
    tree::NodeId,
};

/// The links between neighbours, and what goes over their connections. Each key is from whom and to whom.
#[derive(Default)]
pub(super) struct Links {
    up: BTreeMap<(NodeId, NodeId), Link<Up>>,
    down: BTreeMap<(NodeId, NodeId), Link<Down>>,
    under_way: BTreeMap<(NodeId, NodeId), VecDeque<Bytes>>,
    /// Lost connections, by the one who has to make them again and the one above it.
    cut: Vec<(NodeId, NodeId)>,
}

impl Links {
    pub(super) fn is_quiet(&self) -> bool {
        self.under_way.values().all(VecDeque::is_empty)
    }

    /// Over which something may come now.
    pub(super) fn busy(&self) -> Vec<(NodeId, NodeId)> {
        let busy = self.under_way.iter().filter(|(_, queue)| !queue.is_empty());
        busy.map(|(&link, _)| link).collect()
    }

    pub(super) fn cut(&self) -> &[(NodeId, NodeId)] {
        &self.cut
    }

    /// Connections that may be lost, by the one below and the one above.
    pub(super) fn standing(&self) -> Vec<(NodeId, NodeId)> {
        let links = self.up.keys().filter(|link| !self.cut.contains(link));
        links.copied().collect()
    }

    pub(super) fn send_up(&mut self, link: (NodeId, NodeId), up: Up) {
        self.up.entry(link).or_default().push(up, 0);
        self.flush(link);
    }

    pub(super) fn send_down(&mut self, link: (NodeId, NodeId), down: Down) {
        self.down.entry(link).or_default().push(down, 0);
        self.flush(link);
    }

    fn flush(&mut self, link: (NodeId, NodeId)) {
        let queue = self.under_way.entry(link).or_default();
        while let Some(body) = self.up.get_mut(&link).and_then(Link::poll_body) {
            self.up.get_mut(&link).unwrap().handle_sent();
            queue.push_back(body);
        }
        while let Some(body) = self.down.get_mut(&link).and_then(Link::poll_body) {
            self.down.get_mut(&link).unwrap().handle_sent();
            queue.push_back(body);
        }
    }

    /// Takes the next that comes over a connection.
    pub(super) fn take(&mut self, (from, to): (NodeId, NodeId)) -> Option<Bytes> {
        self.under_way.get_mut(&(from, to))?.pop_front()
    }

    /// What came to a node from the one below it.
    pub(super) fn receive_up(&mut self, (from, to): (NodeId, NodeId), body: &Bytes) -> Vec<Up> {
        let ups = self
            .down
            .entry((to, from))
            .or_default()
            .handle_body(body)
            .unwrap();
        self.flush((to, from));
        ups
    }

    /// What came to a node from the one above it.
    pub(super) fn receive_down(&mut self, (from, to): (NodeId, NodeId), body: &Bytes) -> Vec<Down> {
        let downs = self.up.entry((to, from)).or_default().handle_body(body).unwrap();
        self.flush((to, from));
        downs
    }

    /// A connection is lost with all that was under way.
    pub(super) fn lose_connection(&mut self, (below, above): (NodeId, NodeId)) {
        self.under_way.remove(&(below, above));
        self.under_way.remove(&(above, below));
        self.up.entry((below, above)).or_default().handle_cut();
        self.down.entry((above, below)).or_default().handle_cut();
        self.cut.push((below, above));
    }

    /// The node below connects again.
    pub(super) fn connect_again(&mut self, index: usize) {
        let link = self.cut.remove(index);
        if let Some(up) = self.up.get_mut(&link) {
            up.greet();
            self.flush(link);
        }
    }

    /// Nothing comes over this connection any more.
    pub(super) fn end(&mut self, (from, to): (NodeId, NodeId)) {
        self.under_way.remove(&(from, to));
    }

    /// A node is gone: nothing comes to it any more. What it had sent is on its way, unless that is `lost` too.
    pub(super) fn remove(&mut self, node: NodeId, lost: bool) {
        self.under_way
            .retain(|&(from, to), _| to != node && !(lost && from == node));
        self.up.retain(|&(from, _), _| from != node);
        self.down.retain(|&(from, _), _| from != node);
        self.cut.retain(|&(below, above)| below != node && above != node);
    }
}

impl World {
    pub(super) fn deliver(&mut self, (from, to): (NodeId, NodeId)) {
        let Some(body) = self.links.take((from, to)) else {
            return;
        };
        if to != NodeId::ROOT && !self.nodes.contains_key(&to) {
            return;
        }
        if self.is_upwards(from, to) {
            let ups = self.links.receive_up((from, to), &body);
            for up in ups {
                if self.forgets(matches!(up.report, Report::Pmi(_) | Report::Finished)) {
                    continue;
                }
                self.relay(to).handle_up(from, up);
            }
        } else if self.parent(to) == from {
            let downs = self.links.receive_down((from, to), &body);
            for down in downs {
                if self.forgets(matches!(down, Down::Pmi(_) | Down::Group(_))) {
                    continue;
                }
                self.relay(to).handle_down(down);
            }
        }
    }

    /// Numbers of nodes grow downwards, and the launcher's is the lowest.
    fn is_upwards(&self, from: NodeId, to: NodeId) -> bool {
        to < from
    }

    /// Whether what came is not to be heard: what a mistake does that loses something.
    fn forgets(&mut self, matters: bool) -> bool {
        match &mut self.forgotten_left {
            Some(0) if matters => {
                self.forgotten_left = None;
                self.has_forgotten = true;
                true
            }
            Some(left) if matters => {
                *left -= 1;
                false
            }
            _ => false,
        }
    }
}
