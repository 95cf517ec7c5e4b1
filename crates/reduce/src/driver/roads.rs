//! The roads to other ranks: directly, or through a rank of a third host where two hosts do not reach each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, Identity};
use ropewalk_names::{Epoch, Rank};
use ropewalk_rpc::{Call, Engine, Fault, Responder};

use super::{bootstrap::HostMark, procedures::Forward};
use crate::message::Forwarded;

/// The roads to all ranks, and the messages of others that go through this one.
pub(super) struct Roads {
    own: Identity,
    /// The hosts of all ranks.
    hosts: Vec<HostMark>,
    detours: BTreeMap<Rank, Detour>,
    forwarded: Vec<(Call<()>, Responder<()>)>,
}

/// The road to a rank that could not be reached.
#[derive(Debug)]
struct Detour {
    /// Through this rank; `None` for directly, again.
    via: Option<Rank>,
    /// The ranks through which it could not be reached either.
    failed: BTreeSet<Rank>,
    /// No road has led to it: it is tried again then.
    pause: Duration,
    paused_until: Instant,
    /// From then on the straight road is tried again.
    ends_at: Instant,
}

/// A road to a rank.
pub(super) struct Road<'a> {
    pub(super) from: Identity,
    pub(super) to: Rank,
    pub(super) via: Option<Rank>,
    /// The first process on it.
    pub(super) address: &'a Address,
}

impl Roads {
    const PAUSE_MIN: Duration = Duration::from_millis(100);
    const PAUSE_MAX: Duration = Duration::from_secs(1);
    const DETOUR_MAX: Duration = Duration::from_secs(60);
    /// So many ranks are asked to forward something before the straight road is tried again.
    const FAILED_MAX: usize = 4;

    pub(super) fn new(own: Identity, hosts: Vec<HostMark>) -> Self {
        Self {
            own,
            hosts,
            detours: BTreeMap::new(),
            forwarded: Vec::new(),
        }
    }

    /// The hosts of all ranks.
    pub(super) fn hosts(&self) -> &[HostMark] {
        &self.hosts
    }

    /// The road to a rank, unless none has led there a moment ago.
    pub(super) fn to<'a>(&mut self, rank: Rank, addresses: &'a [Option<Address>]) -> Option<Road<'a>> {
        let now = Instant::now();
        if self
            .detours
            .get(&rank)
            .is_some_and(|detour| detour.ends_at <= now)
        {
            self.detours.remove(&rank);
        }
        let detour = self.detours.get(&rank);
        if detour.is_some_and(|detour| detour.paused_until > now) {
            return None;
        }
        let via = detour.and_then(|detour| detour.via);
        let address = match via.map(|via| &addresses[via.index()]) {
            Some(Some(address)) => address,
            Some(None) => {
                self.fail(rank, via, addresses);
                return None;
            }
            None => addresses[rank.index()].as_ref()?,
        };
        Some(Road {
            from: self.own,
            to: rank,
            via,
            address,
        })
    }

    /// Nothing is sent to a rank for the moment, for no road has led to it.
    pub(super) fn is_paused(&self, rank: Rank) -> bool {
        let detour = self.detours.get(&rank);
        detour.is_some_and(|detour| detour.paused_until > Instant::now())
    }

    /// When the next pause is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let pauses = self.detours.values().map(|detour| detour.paused_until);
        pauses.filter(|until| *until > now).min()
    }

    /// A rank is not reached directly, as far as is known.
    pub(super) fn is_detour(&self, rank: Rank) -> bool {
        self.detours.contains_key(&rank)
    }

    /// A rank is there: the straight road is open.
    pub(super) fn open(&mut self, rank: Rank) {
        self.detours.remove(&rank);
    }

    /// A road has not led to a rank. If it is the present one another one is tried next: through ranks of other hosts
    /// than the two, one after the other, and then directly.
    pub(super) fn fail(&mut self, rank: Rank, via: Option<Rank>, addresses: &[Option<Address>]) {
        let now = Instant::now();
        let cut_off: BTreeSet<Rank> = self.detours.keys().copied().collect();
        let detour = self.detours.entry(rank).or_insert_with(|| Detour {
            via: None,
            failed: BTreeSet::new(),
            pause: Self::PAUSE_MIN,
            paused_until: now,
            ends_at: now + Self::DETOUR_MAX,
        });
        if detour.via != via {
            return;
        }
        detour.failed.extend(via);
        let hosts = &self.hosts;
        let own_host = hosts[self.own.rank.index()];
        let is_between = |other: &Rank| {
            let host = hosts[other.index()];
            addresses[other.index()].is_some()
                && host != own_host
                && host != hosts[rank.index()]
                && !cut_off.contains(other)
                && !detour.failed.contains(other)
        };
        // Not all of those who look for a road take the same one.
        let count = hosts.len() as u32;
        let mut order = (0..count).map(|step| Rank((self.own.rank.0 + rank.0 + step) % count));
        let next = order.find(is_between);
        let next = next.filter(|_| detour.failed.len() < Self::FAILED_MAX);
        detour.via = next;
        if next.is_none() {
            detour.failed.clear();
            detour.paused_until = now + detour.pause;
            detour.pause = (detour.pause * 2).min(Self::PAUSE_MAX);
        }
    }

    /// Takes messages of another rank on to the last one on their road.
    pub(super) fn forward(
        &mut self,
        engine: &mut Engine,
        address: Option<&Address>,
        letters: (Epoch, Box<Forwarded>),
        responder: Responder<()>,
    ) {
        let Some(address) = address else {
            return responder.answer(Err(Fault::new("the rank is gone, as far as is known here")));
        };
        match engine.call::<Forward>(address, &letters, FORWARD_TIMEOUT) {
            Ok(call) => self.forwarded.push((call, responder)),
            Err(error) => responder.answer(Err(Fault::new(error))),
        }
    }

    /// Tells whoever sent them what became of messages that went through here.
    pub(super) fn see_to_forwarded(&mut self) {
        let mut at = 0;
        while at < self.forwarded.len() {
            match self.forwarded[at].0.try_take() {
                None => at += 1,
                Some(result) => {
                    let (_, responder) = self.forwarded.swap_remove(at);
                    responder.answer(result.map_err(Fault::new));
                }
            }
        }
    }
}

/// One that is gone is noticed earlier.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use ropewalk_fabric::Role;
    use ropewalk_names::Incarnation;

    use super::*;

    fn make(hosts: &[&str]) -> (Roads, Vec<Option<Address>>) {
        let own = Identity {
            role: Role::Rank,
            rank: Rank(0),
            incarnation: Incarnation(0),
        };
        let address = |at: usize| Some(format!("tcp://127.0.0.1:{}", at + 1).parse().unwrap());
        let marks = hosts.iter().map(|host| HostMark::of(host)).collect();
        (Roads::new(own, marks), (0..hosts.len()).map(address).collect())
    }

    /// Where the straight road fails ranks of third hosts are tried, then the straight road again.
    #[test]
    fn third_hosts_are_tried() {
        let (mut roads, addresses) = make(&["a", "a", "b", "b", "c", "d"]);
        assert_eq!(roads.to(Rank(2), &addresses).map(|road| road.via), Some(None));
        let mut tried = Vec::new();
        roads.fail(Rank(2), None, &addresses);
        while let Some(Road { via: Some(via), .. }) = roads.to(Rank(2), &addresses) {
            tried.push(via);
            // One that failed before says nothing of this one.
            roads.fail(Rank(2), None, &addresses);
            roads.fail(Rank(2), Some(via), &addresses);
        }
        assert_eq!(tried, [Rank(4), Rank(5)]);
        assert!(roads.is_paused(Rank(2)));
        roads.open(Rank(2));
        assert!(!roads.is_detour(Rank(2)));
    }

    /// Two hosts have no third one, and a rank that is gone forwards nothing.
    #[test]
    fn there_may_be_no_other_road() {
        let (mut roads, addresses) = make(&["a", "b", "b"]);
        roads.fail(Rank(1), None, &addresses);
        assert!(roads.is_paused(Rank(1)));
        let (mut roads, mut addresses) = make(&["a", "b", "c"]);
        roads.fail(Rank(1), None, &addresses);
        addresses[2] = None;
        assert!(roads.to(Rank(1), &addresses).is_none());
        assert!(roads.is_paused(Rank(1)));
    }
}
