//! Views: who belongs to a job, as its members have agreed.

use std::{
    collections::{BTreeSet, btree_set},
    fmt,
};

use ropewalk_names::{Epoch, Rank};
use serde::{Deserialize, Serialize};

use crate::canary::{Canary, is_put_back};

/// The number of a view: how many views came before it, and the member that proposed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ViewEpoch {
    /// One more than that of the view before; 0 for the first view.
    pub counter: Epoch,
    /// The member that proposed the view.
    pub proposer: Rank,
}

impl fmt::Display for ViewEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, proposed by rank {}", self.counter, self.proposer)
    }
}

/// The members of a job at one time: all ranks but those that departed. Members only ever leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    epoch: ViewEpoch,
    size: u32,
    departed: BTreeSet<Rank>,
}

impl View {
    /// The view with which a job of `size` ranks begins: all are members.
    pub fn first(size: u32) -> Self {
        Self {
            epoch: ViewEpoch {
                counter: Epoch(0),
                proposer: Rank(0),
            },
            size,
            departed: BTreeSet::new(),
        }
    }

    /// The view after this one, as `proposer` proposes it, without the members that are `lost`.
    #[must_use]
    pub fn without<'a>(&self, lost: impl IntoIterator<Item = &'a Rank>, proposer: Rank) -> Self {
        let lost = lost.into_iter().copied().filter(|rank| self.contains(*rank));
        Self {
            epoch: ViewEpoch {
                counter: self.epoch.counter.next(),
                proposer,
            },
            size: self.size,
            departed: self.departed.iter().copied().chain(lost).collect(),
        }
    }

    /// The number of the view.
    pub fn epoch(&self) -> ViewEpoch {
        self.epoch
    }

    /// The number of ranks with which the job began.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Says if `rank` is a member.
    pub fn contains(&self, rank: Rank) -> bool {
        rank.0 < self.size && !self.departed.contains(&rank)
    }

    /// The members, ascending.
    pub fn members(&self) -> impl Iterator<Item = Rank> {
        let departed = &self.departed;
        (0..self.size)
            .map(Rank)
            .filter(move |rank| !departed.contains(rank))
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        (self.size as usize).saturating_sub(self.departed.len())
    }

    /// Says if nobody is a member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ranks that departed, ascending.
    pub fn departed(&self) -> btree_set::Iter<'_, Rank> {
        self.departed.iter()
    }

    /// Says if these members decide for the view: more than half of its members, or exactly half with the lowest
    /// member among them. Two sets that decide have a member in common.
    pub fn is_majority(&self, ranks: impl Iterator<Item = Rank>) -> bool {
        let lowest = self.members().next();
        let (mut count, mut has_lowest) = (0, false);
        for rank in ranks.filter(|rank| self.contains(*rank)) {
            count += 1;
            has_lowest |= Some(rank) == lowest;
        }
        2 * count > self.len()
            || (2 * count == self.len() && (has_lowest || is_put_back(Canary::EitherHalfDecides)))
    }

    /// Says if `next` may follow this view: it has the next number, and its members are members here that decide.
    pub fn may_precede(&self, next: &Self) -> bool {
        next.size == self.size
            && next.epoch.counter == self.epoch.counter.next()
            && next.departed.is_superset(&self.departed)
            && next.departed.len() > self.departed.len()
            && next.departed.last().is_none_or(|rank| rank.0 < self.size)
            && self.is_majority(next.members())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranks(bits: u32) -> BTreeSet<Rank> {
        (0..32).filter(|at| bits & 1 << at != 0).map(Rank).collect()
    }

    proptest! {
        /// Two sets of members that decide have one in common, whatever the view.
        #[test]
        fn deciding_sets_meet(size in 1_u32..12, lost: u32, one: u32, other: u32) {
            let view = View::first(size).without(&ranks(lost), Rank(0));
            let (one, other) = (ranks(one), ranks(other));
            let common = one.intersection(&other).any(|rank| view.contains(*rank));
            let both = view.is_majority(one.iter().copied()) && view.is_majority(other.iter().copied());
            prop_assert!(!both || common);
        }

        /// Of a view that falls apart into two, exactly one side decides.
        #[test]
        fn one_side_of_two_decides(size in 1_u32..12, lost: u32, side: u32) {
            let view = View::first(size).without(&ranks(lost), Rank(0));
            prop_assume!(!view.is_empty());
            let side = ranks(side);
            let (one, other): (Vec<_>, Vec<_>) = view.members().partition(|rank| side.contains(rank));
            prop_assert!(view.is_majority(one.into_iter()) != view.is_majority(other.into_iter()));
        }

        /// A view that follows another has members that decide for that one.
        #[test]
        fn members_that_decide_follow(size in 1_u32..12, lost: u32) {
            let first = View::first(size);
            let next = first.without(&ranks(lost), Rank(0));
            let decides = first.is_majority(next.members());
            prop_assert_eq!(first.may_precede(&next), decides && next.len() < first.len());
        }
    }

    /// Half of the members go on if the lowest one is among them, and the others do not.
    #[test]
    fn the_lowest_rank_decides_a_tie() {
        let view = View::first(4);
        assert!(view.is_majority([0, 3].map(Rank).into_iter()));
        assert!(!view.is_majority([1, 2].map(Rank).into_iter()));
        let next = view.without(&BTreeSet::from([Rank(0)]), Rank(1));
        assert!(next.is_majority([1, 2].map(Rank).into_iter()));
        assert!(
            !next.is_majority([0, 3].map(Rank).into_iter()),
            "rank 0 is no member any more"
        );
    }
}
