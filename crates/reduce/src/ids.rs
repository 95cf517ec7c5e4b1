//! The names of what a reduction consists of.

use std::fmt;

use ropewalk_membership::ProcessGroup;
use serde::{Deserialize, Serialize};

/// The identity of a process group: the same on every member, made from its list of ranks alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u128);

impl GroupId {
    /// The identity of `group`.
    pub fn of(group: &ProcessGroup) -> Self {
        let mut hasher = blake3::Hasher::new();
        for rank in group.ranks() {
            hasher.update(&rank.0.to_le_bytes());
        }
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        Self(u128::from_le_bytes(bytes))
    }
}

/// The identity of one reduction, the same on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReductionId {
    /// The group that reduces.
    pub group: GroupId,
    /// Which of its reductions.
    pub number: ReductionNumber,
}

impl fmt::Display for ReductionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of group {:08x}", self.number, self.group.0 as u32)
    }
}

/// How a reduction is told from the others of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReductionNumber {
    /// By the order of calls, the same on every member, from 0.
    Call(u64),
    /// By an identifier that the caller gave, as in the paper (figure 2).
    Named(u64),
}

impl fmt::Display for ReductionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(number) => write!(f, "reduction {number}"),
            Self::Named(name) => write!(f, "reduction named {name}"),
        }
    }
}

/// A task of a scheduler; never used twice, so that an answer to a cancelled one is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId(pub u64);

/// A part of one reduction: immutable content under a name that is never used twice.
///
/// In each stripe the numbers below the size of the group are the members' original contributions, by their
/// index; larger numbers are partial results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartId {
    /// Which stripe of the vector.
    pub stripe: u32,
    /// Which part of that stripe.
    pub number: u32,
}

/// 128 random bits that come with each contribution. Combining two parts adds their tokens modulo 2^128, so
/// that the token of the result proves that each contribution was counted exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(pub u128);

impl std::ops::Add for Token {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

impl std::iter::Sum for Token {
    fn sum<I: Iterator<Item = Self>>(tokens: I) -> Self {
        tokens.fold(Self::default(), |sum, token| sum + token)
    }
}
