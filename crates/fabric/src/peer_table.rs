//! The peers that one endpoint knows.

use std::{collections::HashMap, iter::Sum, sync::Arc, time::Instant};

use crate::{Address, Peer, dense_map::DenseKey};

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

impl DenseKey for PeerId {
    fn index(self) -> usize {
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
    /// How many peers are watched.
    watched: usize,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    known: Option<Known>,
    /// Who it was, while the owner has not taken all that came from it.
    late: Option<(Address, Option<Arc<Peer>>)>,
}

/// The state of one peer, as far as it is known.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) address: Address,
    /// Once it has proven itself.
    pub(crate) proven: Option<Arc<Peer>>,
    /// Which of the endpoint's providers reaches it, once one was asked to.
    pub(crate) provider: Option<usize>,
    /// How many operations with it are in progress.
    pub(crate) operations: usize,
    /// True if the owner wants to know of its death even if no operation is in progress, see
    /// [`watch`](PeerTable::watch).
    watched: bool,
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

/// The activity of a peer, as a provider has seen it; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// How much came from it.
    pub heard: u64,
    /// How much of ours its system has taken.
    pub taken: u64,
    /// How much was queued for it.
    pub queued: u64,
}

impl Sum for Activity {
    fn sum<I: Iterator<Item = Self>>(activities: I) -> Self {
        activities.fold(Self::default(), |sum, more| Self {
            heard: sum.heard + more.heard,
            taken: sum.taken + more.taken,
            queued: sum.queued + more.queued,
        })
    }
}

impl Known {
    /// Returns true if somebody waits for something from it, or wants to know when it dies.
    pub(crate) fn is_awaited(&self) -> bool {
        self.operations > 0 || self.watched
    }
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
                late: None,
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

    /// The owner wants to know of the peer's death from now on.
    pub(crate) fn watch(&mut self, peer: PeerId) {
        if let Some(known) = self.get_mut(peer)
            && !std::mem::replace(&mut known.watched, true)
        {
            self.watched += 1;
        }
    }

    /// It may be silent from now on, unless operations wait for it.
    pub(crate) fn unwatch(&mut self, peer: PeerId) {
        if let Some(known) = self.get_mut(peer)
            && std::mem::take(&mut known.watched)
        {
            self.watched -= 1;
        }
    }

    /// Returns true if any peer is watched.
    pub(crate) fn is_any_watched(&self) -> bool {
        self.watched > 0
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

    /// Where a peer is or, until [`vacate`](Self::vacate), was.
    pub(crate) fn address(&self, peer: PeerId) -> Option<&Address> {
        let entry = self.entry(peer)?;
        let late = entry.late.as_ref().map(|(address, _)| address);
        entry.known.as_ref().map(|known| &known.address).or(late)
    }

    /// Who a peer is or, until [`vacate`](Self::vacate), was.
    pub(crate) fn proven(&self, peer: PeerId) -> Option<&Arc<Peer>> {
        let entry = self.entry(peer)?;
        match (&entry.known, &entry.late) {
            (Some(Known { proven, .. }), _) | (None, Some((_, proven))) => proven.as_ref(),
            (None, None) => None,
        }
    }

    fn entry(&self, peer: PeerId) -> Option<&Entry> {
        let entry = self.entries.get(peer.index());
        entry.filter(|entry| entry.generation == peer.generation)
    }

    /// Forgets a peer that is gone: its name only tells still who it was.
    pub(crate) fn remove(&mut self, peer: PeerId) -> Option<Known> {
        self.get(peer)?;
        let entry = &mut self.entries[peer.index()];
        let known = entry.known.take()?;
        entry.late = Some((known.address.clone(), known.proven.clone()));
        self.by_address.remove(&known.address);
        self.latest = None;
        self.watched -= usize::from(known.watched);
        Some(known)
    }

    /// Ends the name of a peer that was removed.
    pub(crate) fn vacate(&mut self, peer: PeerId) {
        if let Some(entry) = self.entries.get_mut(peer.index())
            && entry.generation == peer.generation
            && entry.late.take().is_some()
        {
            entry.generation = entry.generation.wrapping_add(1);
            self.vacant.push(peer.index);
        }
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
    use ropewalk_names::{Incarnation, Rank};

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
            instance: 5,
        };
        assert_eq!(table.prove(proven, 1), peer);
        assert_eq!(table.get(peer).unwrap().provider, Some(1));
        for _ in 0..2 {
            table.watch(peer);
        }
        assert!(table.is_any_watched() && table.get(peer).unwrap().is_awaited());
        assert!(table.remove(peer).is_some() && table.remove(peer).is_none());
        assert!(table.get(peer).is_none() && !table.is_any_watched());
        assert_ne!(table.intern(&other), table.intern(&address));
        assert_eq!(table.address(peer), Some(&address));
        assert_eq!(table.proven(peer).unwrap().instance, 5);
        let next = table.intern(&address);
        assert!(table.remove(next).is_some());
        table.vacate(peer);
        table.vacate(peer);
        assert_eq!((table.address(peer), table.proven(peer)), (None, None));
        let successor = table.intern(&address);
        assert_ne!(successor, peer);
        assert_eq!(successor.index(), peer.index());
        assert!(table.get(successor).unwrap().proven.is_none());
        assert_eq!(table.iter_mut().count(), 2);
    }
}
