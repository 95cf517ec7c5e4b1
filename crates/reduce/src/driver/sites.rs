//! The numbers of the core's sites.

use ropewalk_names::Rank;
use ropewalk_reduce_core::Site;

/// Sites of a job of so many ranks: the ranks, the contributions that they leave to their agents, and the copies that
/// they keep of each other's contributions.
///
/// Nobody is at a site of the last two kinds: its parent in a tree reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sites {
    size: u32,
}

/// A site by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rank(Rank),
    /// The contributions that a rank has left to its agent.
    Left(Rank),
    /// The contributions of `owner` that `keeper` has copied.
    Copy {
        keeper: Rank,
        owner: Rank,
    },
}

impl Sites {
    /// Larger jobs have no numbers for copies.
    pub(super) const COPIES_SIZE_MAX: u32 = 65_534;

    pub(super) fn new(size: u32) -> Self {
        Self { size }
    }

    pub(super) fn of_left(self, rank: Rank) -> Site {
        Site(self.size + rank.0)
    }

    /// The site of copies, in a job of at most [`COPIES_SIZE_MAX`](Self::COPIES_SIZE_MAX) ranks.
    pub(super) fn of_copy(self, keeper: Rank, owner: Rank) -> Site {
        Site(self.size * (2 + keeper.0) + owner.0)
    }

    /// The same, if these are ranks of the job.
    pub(super) fn of_told_copy(self, keeper: Rank, owner: Rank) -> Option<Site> {
        (keeper.0 < self.size && owner.0 < self.size).then(|| self.of_copy(keeper, owner))
    }

    pub(super) fn kind(self, site: Site) -> Kind {
        let rank = Rank(site.0 % self.size);
        match site.0 / self.size {
            0 => Kind::Rank(rank),
            1 => Kind::Left(rank),
            keeper => Kind::Copy {
                keeper: Rank(keeper - 2),
                owner: rank,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each number is one thing.
    #[test]
    fn numbers_are_told_apart() {
        for size in [1, 2, 7, Sites::COPIES_SIZE_MAX] {
            let sites = Sites::new(size);
            let last = Rank(size - 1);
            assert_eq!(sites.kind(Site(last.0)), Kind::Rank(last));
            assert_eq!(sites.kind(sites.of_left(last)), Kind::Left(last));
            for (keeper, owner) in [(Rank(0), last), (last, Rank(0)), (last, last)] {
                let site = sites.of_copy(keeper, owner);
                assert_eq!(sites.kind(site), Kind::Copy { keeper, owner });
            }
        }
    }
}
