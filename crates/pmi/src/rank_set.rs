//! Sets of ranks.

use serde::{Deserialize, Serialize};

/// A set of ranks, kept and sent as ranges: a whole job takes a few bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct RankSet {
    /// Begin and end of each range, in order, neither empty nor touching each other.
    ranges: Vec<(u32, u32)>,
    length: u32,
}

impl RankSet {
    /// The ranks from `begin` to before `end`.
    pub fn range(begin: u32, end: u32) -> Self {
        Self::from(vec![(begin, end)])
    }

    /// How many ranks are in the set.
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Returns true if no rank is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns true if `rank` is in the set.
    pub fn contains(&self, rank: u32) -> bool {
        let after = self.ranges.partition_point(|&(begin, _)| begin <= rank);
        after > 0 && rank < self.ranges[after - 1].1
    }

    /// Adds `rank`; says whether it was not there.
    pub fn insert(&mut self, rank: u32) -> bool {
        if self.contains(rank) || rank == u32::MAX {
            return false;
        }
        let after = self.ranges.partition_point(|&(begin, _)| begin <= rank);
        let joins_before = after > 0 && self.ranges[after - 1].1 == rank;
        let joins_after = self
            .ranges
            .get(after)
            .is_some_and(|&(begin, _)| begin == rank + 1);
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[after - 1].1 = self.ranges[after].1;
                self.ranges.remove(after);
            }
            (true, false) => self.ranges[after - 1].1 = rank + 1,
            (false, true) => self.ranges[after].0 = rank,
            (false, false) => self.ranges.insert(after, (rank, rank + 1)),
        }
        self.length += 1;
        true
    }

    /// Takes `rank` out; says whether it was there.
    pub fn remove(&mut self, rank: u32) -> bool {
        if !self.contains(rank) {
            return false;
        }
        let index = self.ranges.partition_point(|&(begin, _)| begin <= rank) - 1;
        let (begin, end) = self.ranges[index];
        let rests = [(begin, rank), (rank + 1, end)];
        let rests = rests.into_iter().filter(|(begin, end)| begin < end);
        self.ranges.splice(index..=index, rests);
        self.length -= 1;
        true
    }

    /// The ranks that are in this set, in the other, or in both.
    pub fn union(&self, other: &Self) -> Self {
        self.ranges
            .iter()
            .chain(&other.ranges)
            .copied()
            .collect::<Vec<_>>()
            .into()
    }

    /// The ranks that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some(&&(left_begin, left_end)), Some(&&(right_begin, right_end))) =
            (left.peek(), right.peek())
        {
            ranges.push((left_begin.max(right_begin), left_end.min(right_end)));
            if left_end < right_end {
                left.next();
            } else {
                right.next();
            }
        }
        ranges.into()
    }

    /// The ranks of this set that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        let mut ranges = Vec::new();
        let mut holes = other.ranges.iter().peekable();
        for &(mut begin, end) in &self.ranges {
            while let Some(&&(hole_begin, hole_end)) = holes.peek() {
                if hole_begin >= end {
                    break;
                }
                ranges.push((begin, hole_begin.max(begin)));
                begin = begin.max(hole_end);
                if hole_end > end {
                    break;
                }
                holes.next();
            }
            ranges.push((begin, end));
        }
        ranges.into()
    }

    /// Returns true if all ranks of this set are in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.length <= other.length
            && self.ranges.iter().all(|&(begin, end)| {
                let after = other
                    .ranges
                    .partition_point(|&(other_begin, _)| other_begin <= begin);
                after > 0 && end <= other.ranges[after - 1].1
            })
    }

    /// The ranks in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(begin, end)| begin..end)
    }

    /// The smallest rank.
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|&(begin, _)| begin)
    }
}

/// From ranges in any order, which may be empty and overlap.
impl From<Vec<(u32, u32)>> for RankSet {
    fn from(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.retain(|(begin, end)| begin < end);
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (begin, end) in ranges {
            match joined.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((begin, end)),
            }
        }
        let length = joined.iter().map(|(begin, end)| end - begin).sum();
        Self {
            ranges: joined,
            length,
        }
    }
}

impl From<RankSet> for Vec<(u32, u32)> {
    fn from(set: RankSet) -> Self {
        set.ranges
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let ranges = ranks.into_iter().map(|rank| (rank, rank.saturating_add(1)));
        ranges.collect::<Vec<_>>().into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members(set: &RankSet) -> BTreeSet<u32> {
        set.iter().collect()
    }

    proptest! {
        /// A set of ranks does what a set of numbers does.
        #[test]
        fn ranges_are_a_set(
            left in proptest::collection::btree_set(0..40_u32, 0..30),
            right in proptest::collection::btree_set(0..40_u32, 0..30),
            rank in 0..40_u32,
        ) {
            let (left_set, right_set): (RankSet, RankSet) =
                (left.iter().copied().collect(), right.iter().copied().collect());
            prop_assert_eq!(left_set.len() as usize, left.len());
            prop_assert_eq!(&members(&left_set), &left);
            prop_assert_eq!(members(&left_set.union(&right_set)), &left | &right);
            prop_assert_eq!(members(&left_set.intersection(&right_set)), &left & &right);
            prop_assert_eq!(members(&left_set.difference(&right_set)), &left - &right);
            prop_assert_eq!(left_set.is_subset(&right_set), left.is_subset(&right));
            prop_assert_eq!(left_set.contains(rank), left.contains(&rank));

            let (mut set, mut numbers) = (left_set.clone(), left.clone());
            prop_assert_eq!(set.insert(rank), numbers.insert(rank));
            prop_assert_eq!(members(&set), numbers.clone());
            prop_assert_eq!(set.len() as usize, numbers.len());
            prop_assert!(set.remove(rank) && !set.remove(rank));
            numbers.remove(&rank);
            prop_assert_eq!(members(&set), numbers.clone());
            // Whatever way it came about, an equal set is equal.
            prop_assert_eq!(set, numbers.into_iter().collect::<RankSet>());
        }
    }

    /// Ranges from a peer may be anything and make a set all the same.
    #[test]
    fn ranges_from_a_peer_are_put_in_order() {
        let set = RankSet::from(vec![(7, 9), (3, 3), (0, 2), (2, 4), (8, 8), (9, 5), (0, 1)]);
        assert_eq!(Vec::from(set), [(0, 4), (7, 9)]);
    }
}
