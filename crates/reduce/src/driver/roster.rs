//! Who belongs to a job in an epoch of its membership.

use std::cmp::Reverse;

use ropewalk_fabric::{Address, CallTable, TablePlace};
use ropewalk_names::{Epoch, Incarnation, Rank};
use ropewalk_reduce_core::Relays;
use serde::{Deserialize, Serialize};

use super::bootstrap::{HostMark, has_tables};

/// A process of a job, and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    pub(super) rank: Rank,
    pub(super) incarnation: Incarnation,
    pub(super) address: Address,
}

/// The members of a job in an epoch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Roster {
    pub(super) epoch: Epoch,
    /// The hosts of all ranks, also of those that are lost.
    pub(super) hosts: Vec<HostMark>,
    /// The members, ascending.
    members: Vec<Card>,
    /// Those of them that were not there in the epoch before, ascending.
    pub(super) admitted: Vec<Rank>,
    /// The tables of calls of hosts with several ranks, by the texts of their places.
    tables: Vec<(HostMark, String)>,
}

impl Roster {
    /// All ranks of a job that begins, on these hosts.
    pub(super) fn first(addresses: Vec<Address>, hosts: Vec<HostMark>) -> Self {
        let members = addresses.into_iter().zip((0..).map(Rank));
        let members = members.map(|(address, rank)| Card {
            rank,
            incarnation: Incarnation(0),
            address,
        });
        Self {
            epoch: Epoch(0),
            members: members.collect(),
            hosts,
            admitted: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// The epoch after this one: of the processes with these cards the newest of each rank, without the members of this
    /// epoch that are lost.
    pub(super) fn next(&self, mut cards: Vec<Card>, tables: Vec<(HostMark, String)>, lost: &[Rank]) -> Self {
        let is_known = |card: &Card| {
            let known = self.card(card.rank);
            known.is_some_and(|known| known.incarnation == card.incarnation)
        };
        cards.retain(|card| card.rank.index() < self.hosts.len());
        cards.retain(|card| !(is_known(card) && lost.contains(&card.rank)));
        cards.sort_by_key(|card| (card.rank, Reverse(card.incarnation)));
        cards.dedup_by_key(|card| card.rank);
        let admitted = cards.iter().filter(|card| !is_known(card)).map(|card| card.rank);
        let admitted = admitted.collect();
        Self {
            epoch: self.epoch.next(),
            hosts: self.hosts.clone(),
            members: cards,
            admitted,
            tables,
        }
    }

    /// Says if it can be the roster of a job of so many ranks: it comes from another process.
    pub(super) fn fits(&self, size: u32) -> bool {
        let is_ascending = self.members.is_sorted_by(|one, next| one.rank < next.rank);
        let last = self.members.last();
        self.hosts.len() == size as usize && is_ascending && last.is_some_and(|last| last.rank.0 < size)
    }

    pub(super) fn card(&self, rank: Rank) -> Option<&Card> {
        let at = self.members.binary_search_by_key(&rank, |card| card.rank).ok()?;
        self.members.get(at)
    }

    pub(super) fn members(&self) -> &[Card] {
        &self.members
    }

    /// The addresses of all ranks; of lost ones there are none.
    pub(super) fn addresses(&self) -> Vec<Option<Address>> {
        let ranks = (0..self.hosts.len() as u32).map(Rank);
        ranks
            .map(|rank| self.card(rank).map(|card| card.address.clone()))
            .collect()
    }

    /// The ranks that are lost in this epoch, ascending.
    pub(super) fn lost(&self) -> Vec<Rank> {
        let ranks = (0..self.hosts.len() as u32).map(Rank);
        ranks.filter(|rank| self.card(*rank).is_none()).collect()
    }

    /// The members that were there in the epoch before, ascending.
    pub(super) fn stayed(&self) -> impl Iterator<Item = Rank> {
        let ranks = self.members.iter().map(|card| card.rank);
        ranks.filter(|rank| !self.admitted.contains(rank))
    }

    /// The rank with the scheduler, as the epoch begins: the lowest member.
    pub(super) fn seat(&self) -> Rank {
        self.members.first().map_or(Rank(0), |card| card.rank)
    }

    /// The relays between the ranks and the scheduler.
    pub(super) fn relays(&self) -> Relays {
        let hosts = self.hosts.iter().map(|host| host.number());
        Relays::of(&hosts.collect::<Vec<_>>())
    }

    /// The table of calls of a rank's host, if others have made it and it can be had, or if no other member is there.
    pub(super) fn open_table(&self, rank: Rank) -> Option<CallTable> {
        let host = self.hosts.get(rank.index())?;
        let here = HostMark::ranks_beside(rank, &self.hosts);
        let own = here.iter().position(|beside| *beside == rank)?;
        if has_tables(&self.hosts)
            && here
                .iter()
                .all(|beside| *beside == rank || self.card(*beside).is_none())
        {
            return CallTable::create(here.len(), own).ok();
        }
        let (_, place) = self.tables.iter().find(|(made_for, _)| made_for == host)?;
        let place: TablePlace = place.parse().ok()?;
        CallTable::open(&place, here.len(), own).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(rank: u32, incarnation: u32) -> Card {
        Card {
            rank: Rank(rank),
            incarnation: Incarnation(incarnation),
            address: format!("tcp://127.0.0.1:{}", 100 * incarnation + rank + 1)
                .parse()
                .unwrap(),
        }
    }

    /// The newest process of each rank is in the next epoch, unless it is lost by then; the others are missing.
    #[test]
    fn those_who_came_back_are_admitted() {
        let first = (0..4).map(|rank| card(rank, 0).address).collect();
        let first = Roster::first(first, vec![HostMark::of("a"); 4]);
        let cards = vec![
            card(3, 0),
            card(1, 2),
            card(1, 1),
            card(0, 0),
            card(1, 2),
            card(9, 1),
        ];
        // The process of rank 1 that was in the first epoch is lost, as rank 3 is.
        let next = first.next(cards, Vec::new(), &[Rank(1), Rank(3)]);
        assert_eq!(next.epoch, Epoch(1));
        assert_eq!(next.members(), [card(0, 0), card(1, 2)]);
        assert_eq!(next.admitted, [Rank(1)]);
        assert_eq!(next.lost(), [Rank(2), Rank(3)]);
        assert_eq!(next.stayed().collect::<Vec<_>>(), [Rank(0)]);
        assert!(next.fits(4) && !next.fits(5));
        assert_eq!(next.addresses().iter().flatten().count(), 2);
    }
}
