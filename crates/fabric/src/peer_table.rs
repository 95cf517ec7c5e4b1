//! The peers that one endpoint knows.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{Address, Peer};

/// The name of a peer at one endpoint, from when it was first named or connected until
/// [`Event::PeerDied`](crate::Event::PeerDied) tells of its death. Cheap to copy and to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    index: u32,
    generation: u32,
}

impl PeerId {
    /// A small number that no other peer has at the same time: for tables of the owner.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The addresses and identities of the peers, and which provider reaches each.
#[derive(Debug, Default)]
pub(crate) struct PeerTable {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    by_address: HashMap<Address, PeerId>,
    /// The address that was named last: who names it again needs no search.
    latest: Option<(Address, PeerId)>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    known: Option<Known>,
}

/// What is known of one peer.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) address: Address,
    /// Once it has proven itself.
    pub(crate) proven: Option<Arc<Peer>>,
    /// Which of the endpoint's providers reaches it, once one was asked to.
    pub(crate) provider: Option<usize>,
    /// How many operations with it are in progress.
    pub(crate) operations: usize,
    /// Whether the owner wants to know of its death even if no operation is in progress.
    pub(crate) watched: bool,
    pub(crate) pulse: Option<Pulse>,
}

/// When a peer that is waited for was last seen to live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    pub(crate) activity: Activity,
    pub(crate) since: Instant,
    /// How much had been queued for it when it was first asked since then, the question included.
    pub(crate) asked: Option<u64>,
}

/// What a provider has seen of a peer; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// How much came from it.
    pub(crate) heard: u64,
    /// How much of ours its system has taken.
    pub(crate) taken: u64,
    /// How much was queued for it.
    pub(crate) queued: u64,
}

impl PeerTable {
    /// The name of the peer at this address, a new one if it has none.
    pub(crate) fn intern(&mut self, address: &Address) -> PeerId {
        if let Some((latest, peer)) = &self.latest
            && latest.is_same(address)
        {
            return *peer;
        }
        let peer = match self.by_address.get(address) {
            Some(&peer) => peer,
            None => self.insert(address.clone()),
        };
        self.latest = Some((address.clone(), peer));
        peer
    }

    fn insert(&mut self, address: Address) -> PeerId {
        let known = Some(Known {
            address: address.clone(),
            proven: None,
            provider: None,
            operations: 0,
            watched: false,
            pulse: None,
        });
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: 0,
                known: None,
            });
            u32::try_from(self.entries.len() - 1).expect("there are fewer peers than memory has words")
        });
        let entry = &mut self.entries[index as usize];
        entry.known = known;
        let peer = PeerId {
            index,
            generation: entry.generation,
        };
        self.by_address.insert(address, peer);
        peer
    }

    pub(crate) fn get(&self, peer: PeerId) -> Option<&Known> {
        let entry = self.entries.get(peer.index())?;
        entry
            .known
            .as_ref()
            .filter(|_| entry.generation == peer.generation)
    }

    pub(crate) fn get_mut(&mut self, peer: PeerId) -> Option<&mut Known> {
        let entry = self.entries.get_mut(peer.index())?;
        entry
            .known
            .as_mut()
            .filter(|_| entry.generation == peer.generation)
    }

    /// Tells that the peer has proven who it is, to which provider. Returns its name.
    pub(crate) fn prove(&mut self, peer: Peer, provider: usize) -> PeerId {
        let id = self.intern(&peer.address);
        if let Some(known) = self.get_mut(id) {
            known.provider.get_or_insert(provider);
            known.proven = Some(Arc::new(peer));
        }
        id
    }

    /// Forgets a peer: its name is of no use from now on.
    pub(crate) fn remove(&mut self, peer: PeerId) -> Option<Known> {
        self.get(peer)?;
        let entry = &mut self.entries[peer.index()];
        entry.generation = entry.generation.wrapping_add(1);
        let known = entry.known.take()?;
        self.by_address.remove(&known.address);
        self.latest = None;
        self.vacant.push(peer.index);
        Some(known)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PeerId, &mut Known)> {
        self.entries.iter_mut().enumerate().filter_map(|(index, entry)| {
            let peer = PeerId {
                index: index as u32,
                generation: entry.generation,
            };
            entry.known.as_mut().map(|known| (peer, known))
        })
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_group::{Incarnation, Rank};

    use super::*;
    use crate::{Identity, Role};

    /// A peer keeps its name until it is removed; who comes to its address then is another.
    #[test]
    fn names_end_with_their_peer() {
        let mut table = PeerTable::default();
        let address: Address = "tcp://127.0.0.1:1".parse().unwrap();
        let same: Address = "tcp://127.0.0.1:1".parse().unwrap();
        let other: Address = "tcp://127.0.0.1:2".parse().unwrap();
        let peer = table.intern(&address);
        assert_eq!(table.intern(&address.clone()), peer);
        assert_ne!(table.intern(&other), peer);
        assert_eq!(table.intern(&same), peer);
        let identity = Identity {
            role: Role::Rank,
            rank: Rank(3),
            incarnation: Incarnation(0),
        };
        let proven = Peer {
            address: same.clone(),
            identity,
        };
        assert_eq!(table.prove(proven, 1), peer);
        assert_eq!(table.get(peer).unwrap().provider, Some(1));
        assert!(table.remove(peer).is_some() && table.remove(peer).is_none());
        assert!(table.get(peer).is_none());
        let successor = table.intern(&address);
        assert_ne!(successor, peer);
        assert_eq!(successor.index(), peer.index());
        assert!(table.get(successor).unwrap().proven.is_none());
        assert_eq!(table.iter_mut().count(), 2);
    }
}
