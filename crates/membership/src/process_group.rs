//! An ordered set of ranks that do something together.

use std::sync::Arc;

use ropewalk_names::Rank;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An ordered set of distinct ranks of a job (MPI standard 4.0, section 6.2.1, "group").
///
/// The position of a rank in the group is its *index*. Clones share the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Rank>", into = "Vec<Rank>")]
pub struct ProcessGroup {
    ranks: Arc<[Rank]>,
}

impl ProcessGroup {
    /// The largest number of ranks in a group.
    pub const SIZE_MAX: usize = 1 << 20;

    /// A group of the given ranks, in the given order.
    ///
    /// # Errors
    /// If there is no rank, a rank stands twice, or there are more than [`Self::SIZE_MAX`].
    pub fn new(ranks: impl Into<Vec<Rank>>) -> Result<Self, GroupError> {
        let ranks = ranks.into();
        if ranks.is_empty() {
            return Err(GroupError::Empty);
        }
        if ranks.len() > Self::SIZE_MAX {
            return Err(GroupError::TooLarge { size: ranks.len() });
        }
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(GroupError::Duplicate { rank: pair[0] });
        }
        Ok(Self { ranks: ranks.into() })
    }

    /// The group of all ranks of a job of `size` processes, at least one.
    pub fn world(size: u32) -> Self {
        Self {
            ranks: (0..size.max(1)).map(Rank).collect(),
        }
    }

    /// How many ranks are in the group.
    #[allow(clippy::len_without_is_empty, reason = "a group is never empty")]
    pub fn len(&self) -> usize {
        self.ranks.len()
    }

    /// The members in order.
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    /// Returns true if `rank` is a member.
    pub fn contains(&self, rank: Rank) -> bool {
        self.index_of(rank).is_some()
    }

    /// The position of `rank` in the group.
    pub fn index_of(&self, rank: Rank) -> Option<usize> {
        // A group that is a range of ranks, as the world is, needs no search.
        match self.ranks.get(rank.index()) {
            Some(&at) if at == rank => Some(rank.index()),
            _ => self.ranks.iter().position(|&member| member == rank),
        }
    }
}

impl TryFrom<Vec<Rank>> for ProcessGroup {
    type Error = GroupError;

    fn try_from(ranks: Vec<Rank>) -> Result<Self, GroupError> {
        Self::new(ranks)
    }
}

impl From<ProcessGroup> for Vec<Rank> {
    fn from(group: ProcessGroup) -> Self {
        group.ranks.to_vec()
    }
}

/// Why a list of ranks is no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A rank was given twice.
    #[error("rank {rank} stands twice in the group; each rank may be a member once")]
    Duplicate {
        /// The rank that stands twice.
        rank: Rank,
    },
    /// No rank was given.
    #[error("a group needs at least one rank")]
    Empty,
    /// More ranks than a group may have.
    #[error(
        "a group of {size} ranks is larger than the largest, {}",
        ProcessGroup::SIZE_MAX
    )]
    TooLarge {
        /// How many were given.
        size: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks that are no ordered set are refused, and positions follow the given order.
    #[test]
    fn a_group_is_an_ordered_set() {
        assert_eq!(ProcessGroup::new(vec![]), Err(GroupError::Empty));
        let twice = ProcessGroup::new(vec![Rank(2), Rank(1), Rank(2)]);
        assert_eq!(twice, Err(GroupError::Duplicate { rank: Rank(2) }));
        let group = ProcessGroup::new(vec![Rank(5), Rank(1), Rank(3)]).unwrap();
        assert_eq!(group.index_of(Rank(1)), Some(1));
        assert_eq!(group.index_of(Rank(0)), None);
        assert_eq!(ProcessGroup::world(4).index_of(Rank(3)), Some(3));
    }
}
