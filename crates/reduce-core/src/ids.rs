use std::fmt;

use serde::{Deserialize, Serialize};

/// A process that takes part: it holds originals and, if it is a rank and not an agent, folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Site(pub u32);

/// A contribution, counted from 0: mostly that of the rank at this place in its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member(pub u32);

/// One collective: the group, and the number of the call on that group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session {
    /// The group.
    pub group: u64,
    /// The calls on a group are counted from 0, in the same order on all its ranks (MPI 4.1, section 6.1).
    pub call: u64,
}

/// Numbers the scheduler's seat: a scheduler that takes over has a higher one. Nothing of a lower term is merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Term(pub u32);

/// Numbers the plans of a term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlanId {
    /// The seat that made it.
    pub term: Term,
    /// Its number in that term.
    pub number: u32,
}

/// Some members whose contributions travel together. The shares of a session are disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShareId(pub u32);

impl ShareId {
    /// The result on its way from the root to all other ranks.
    pub const SPREAD: Self = Self(u32::MAX);
}

/// A node of a plan: one site's part in the tree of one class of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId {
    /// The plan.
    pub plan: PlanId,
    /// The class of chunks: every chunk whose number is this, modulo the number of classes.
    pub class: u16,
    /// The node in the tree of the class.
    pub node: u32,
}

/// Sixteen random bytes that stand for one contribution; those of combined contributions are added modulo 2^128.
///
/// The sum tells a lost or doubled contribution whatever the operation is: two different sets of members have the same
/// sum with a probability of 2^-128.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub u128);

impl Token {
    /// The token of two disjoint sets of contributions.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// The token of all.
    pub fn sum(tokens: impl IntoIterator<Item = Self>) -> Self {
        tokens.into_iter().fold(Self::default(), Self::plus)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}..", self.0 >> 96)
    }
}
