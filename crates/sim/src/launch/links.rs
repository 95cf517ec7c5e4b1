//! The links between the nodes of a simulated job, and the messages that are under way.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_launch_core::{
    batch::LinkMessage,
    link::Link,
    protocol::{Down, Up},
    tree::NodeId,
};

/// From one node to another.
pub(super) type Way = (NodeId, NodeId);

/// A message between two nodes.
#[derive(Clone, Debug)]
pub(super) enum Parcel {
    /// To the node above, over a connection that does not break.
    Ups(Vec<Up>),
    /// To a node below, in the same way.
    Downs(Vec<Down>),
    /// Bytes over a connection, which was the one with this number.
    Body(u32, Vec<u8>),
}

/// The links of a job whose connections break, over the same machines as in a real one.
#[derive(Debug, Default)]
pub(super) struct Links {
    up: BTreeMap<Way, Link<Up>>,
    down: BTreeMap<Way, Link<Down>>,
    /// How many connections there were before, by the node below and the one above.
    connections: BTreeMap<Way, u32>,
    lost: BTreeSet<Way>,
    /// Nothing comes this way any more.
    ended: BTreeSet<Way>,
}

impl Links {
    pub(super) fn push_ups(&mut self, way: Way, ups: Vec<Up>) -> Vec<Parcel> {
        let link = self.up.entry(way).or_default();
        ups.into_iter().for_each(|up| link.push(up, 0));
        self.flush(way)
    }

    pub(super) fn push_downs(&mut self, way: Way, downs: Vec<Down>) -> Vec<Parcel> {
        let link = self.down.entry(way).or_default();
        downs.into_iter().for_each(|down| link.push(down, 0));
        self.flush(way)
    }

    /// All that can be sent now.
    fn flush(&mut self, way: Way) -> Vec<Parcel> {
        let number = self.connections.get(&connection(way)).copied().unwrap_or(0);
        let mut parcels = Vec::new();
        if let Some(link) = self.up.get_mut(&way) {
            while let Some(body) = link.poll_body() {
                link.handle_sent();
                parcels.push(Parcel::Body(number, body.to_vec()));
            }
        }
        if let Some(link) = self.down.get_mut(&way) {
            while let Some(body) = link.poll_body() {
                link.handle_sent();
                parcels.push(Parcel::Body(number, body.to_vec()));
            }
        }
        parcels
    }

    /// Opens what came from a node. Returns it with what is to be sent back.
    pub(super) fn receive(&mut self, way: Way, parcel: Parcel) -> (Parcel, Vec<Parcel>) {
        let (from, to) = way;
        let is_up = to < from;
        let nothing = if is_up {
            Parcel::Ups(Vec::new())
        } else {
            Parcel::Downs(Vec::new())
        };
        let (number, body) = match parcel {
            _ if self.ended.contains(&way) => return (nothing, Vec::new()),
            Parcel::Body(number, body) => (number, body),
            parcel => return (parcel, Vec::new()),
        };
        if self.connections.get(&connection(way)).copied().unwrap_or(0) != number {
            return (nothing, Vec::new());
        }
        let back = (to, from);
        let opened = match is_up {
            true => Parcel::Ups(open(self.down.entry(back).or_default(), &body)),
            false => Parcel::Downs(open(self.up.entry(back).or_default(), &body)),
        };
        (opened, self.flush(back))
    }

    /// Nothing comes this way any more.
    pub(super) fn end(&mut self, way: Way) {
        self.ended.insert(way);
    }

    /// The connections that may be lost, by the node below and the one above.
    pub(super) fn standing(&self) -> Vec<Way> {
        let standing = self.up.keys().filter(|way| !self.lost.contains(way));
        standing.copied().collect()
    }

    /// A connection is lost with all that is under way.
    pub(super) fn lose(&mut self, (below, above): Way) {
        *self.connections.entry((below, above)).or_default() += 1;
        self.up.entry((below, above)).or_default().handle_cut();
        self.down.entry((above, below)).or_default().handle_cut();
        self.lost.insert((below, above));
    }

    /// The node below connects again.
    pub(super) fn connect_again(&mut self, way: Way) -> Vec<Parcel> {
        if self.lost.remove(&way)
            && let Some(link) = self.up.get_mut(&way)
        {
            link.greet();
        }
        self.flush(way)
    }
}

fn open<T, U: LinkMessage>(link: &mut Link<T>, body: &[u8]) -> Vec<U> {
    link.handle_body(body)
        .expect("a connection of the simulation loses what is under way as a whole")
}

/// Numbers of nodes grow downwards, and the launcher's is the lowest.
fn connection((one, other): Way) -> Way {
    (one.max(other), one.min(other))
}
