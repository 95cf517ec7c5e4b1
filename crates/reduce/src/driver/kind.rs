use ropewalk_membership::ProcessGroup;
use ropewalk_names::Rank;
use ropewalk_reduce_core::{Contributions, Member};

/// A collective: who contributes, and who gets the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All contribute, and this rank gets what their contributions are folded to.
    Reduce(Rank),
    /// As `Reduce`, of so many contributions that any rank may hold.
    ReduceSources(u32, Rank),
    Allreduce,
    /// This rank contributes, and all get that.
    Broadcast(Rank),
    /// All contribute, and this rank gets all contributions.
    Gather(Rank),
    Allgather,
}

impl Kind {
    /// Says if all members get the result.
    pub(super) fn is_for_all(self) -> bool {
        matches!(self, Self::Allreduce | Self::Broadcast(_) | Self::Allgather)
    }

    /// Says if a rank makes a contribution.
    pub(super) fn contributes(self, rank: Rank) -> bool {
        !matches!(self, Self::Broadcast(root) if root != rank)
    }

    /// The rank where the result is made. If all get it, the first one, as long as it lives.
    pub(super) fn root(self, members: &ProcessGroup) -> Rank {
        match self {
            Self::Reduce(root)
            | Self::ReduceSources(_, root)
            | Self::Broadcast(root)
            | Self::Gather(root) => root,
            Self::Allreduce | Self::Allgather => members.ranks()[0],
        }
    }

    /// The contributions; `None` if the rank that makes them is not in the group.
    pub(super) fn contributions(self, members: &ProcessGroup) -> Option<Contributions> {
        Some(match self {
            Self::Reduce(_) | Self::Allreduce => Contributions::Each,
            Self::ReduceSources(count, _) => Contributions::Shared(count),
            Self::Broadcast(root) => Contributions::One(Member(members.index_of(root)? as u32)),
            Self::Gather(_) | Self::Allgather => Contributions::SideBySide,
        })
    }
}
