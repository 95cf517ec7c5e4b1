//! The names of groups and reductions.

use std::fmt;

use ropewalk_membership::ProcessGroup;
use ropewalk_names::Epoch;
use ropewalk_reduce_core::Session;
use serde::{Deserialize, Serialize};

/// The identity of a process group: the same on every member, made from its list of ranks, and from the epoch of the
/// job's membership: what an earlier one has left is not taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u64);

impl GroupId {
    /// The identity of `group` in an epoch.
    pub fn of(group: &ProcessGroup, epoch: Epoch) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&epoch.0.to_le_bytes());
        for rank in group.ranks() {
            hasher.update(&rank.0.to_le_bytes());
        }
        let mut bytes = [0; 8];
        hasher.finalize_xof().fill(&mut bytes);
        Self(u64::from_le_bytes(bytes))
    }
}

/// The identity of one reduction, the same on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReductionId {
    /// The group that reduces.
    pub group: GroupId,
    /// The number of the reduction in the group.
    pub number: ReductionNumber,
}

impl ReductionId {
    /// Tells named reductions of a group from numbered ones.
    const NAMED: u64 = 0x6e61_6d65_6420_6279;
    /// The same of those among hosts.
    const AMONG_HOSTS: u64 = 0x616d_6f6e_6720_6873;

    /// The session of the core.
    pub(crate) fn session(self) -> Session {
        let GroupId(group) = self.group;
        match self.number {
            ReductionNumber::Call(call) => Session { group, call },
            ReductionNumber::Named(call) => Session {
                group: group ^ Self::NAMED,
                call,
            },
            ReductionNumber::AmongHosts(call) => Session {
                group: group ^ Self::AMONG_HOSTS,
                call,
            },
        }
    }
}

impl fmt::Display for ReductionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of group {:08x}", self.number, self.group.0 as u32)
    }
}

/// A reduction is told from the others of its group by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReductionNumber {
    /// By the order of calls, the same on every member, from 0.
    Call(u64),
    /// By an identifier that the caller gave, as in the paper (figure 2).
    Named(u64),
    /// The call of all ranks that has this number, made by one rank of each host for all there.
    AmongHosts(u64),
}

impl fmt::Display for ReductionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(number) => write!(f, "reduction {number}"),
            Self::Named(name) => write!(f, "reduction named {name}"),
            Self::AmongHosts(number) => write!(f, "reduction {number} among hosts"),
        }
    }
}
