//! How a reduction ended.

use std::fmt;

use ropewalk_names::{Incarnation, Rank};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    ids::{ReductionId, Token},
    pull_failure::PullFailure,
};

/// What a reduction did, and the proof that it counted every contribution exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// How many contributions are in the result: one of each member.
    pub contributions: u32,
    /// The sum of their tokens, which the root found in every stripe of the result.
    pub token: Token,
    /// How many pairs of parts were combined, each stripe counted by itself.
    pub merges: u64,
    /// How many of these had been done, or were under way, when a death destroyed the outcome.
    pub merges_redone: u64,
    /// The members that were lost on the way; their contributions are in the result all the same.
    pub lost: Vec<Rank>,
}

/// Why a reduction has no result. All members get the same, except for what is [local](ReductionError::is_local).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[non_exhaustive]
pub enum ReductionError {
    /// The agent of this host is gone, and with it whoever would tell of a death.
    #[error("the agent of this host was lost")]
    AgentLost,
    /// A member left before its contribution was safe.
    #[error("rank {rank} was lost before it had made its contribution")]
    ContributionLost {
        /// Who.
        rank: Rank,
    },
    /// The others count this process as gone, and will not hear it any more.
    #[error("this process, rank {rank} (incarnation {incarnation}), is fenced: the others count it as gone")]
    Fenced {
        /// Which rank.
        rank: Rank,
        /// Which life of it.
        incarnation: Incarnation,
    },
    /// The identifier given for this reduction was used before in this group.
    #[error("{reduction} was called before; an identifier may be used once in a group")]
    IdReused {
        /// The reduction.
        reduction: ReductionId,
    },
    /// The members do not ask for the same thing.
    #[error("rank {odd} calls for {found}, the others for {expected}; all members must ask for the same")]
    Mismatch {
        /// Who differs from most of those heard so far.
        odd: Rank,
        /// What the others ask for.
        expected: String,
        /// What that one asks for.
        found: String,
    },
    /// The operation failed or panicked.
    #[error("the operation failed on rank {rank} in stripe {stripe}: {message}")]
    Operation {
        /// Where.
        rank: Rank,
        /// On which stripe.
        stripe: u32,
        /// What it said.
        message: String,
    },
    /// A part that should be there could not be read, again and again.
    #[error("rank {rank} cannot read a part of stripe {stripe}: {failure}")]
    Pull {
        /// Who tried.
        rank: Rank,
        /// Of which stripe.
        stripe: u32,
        /// Why the last attempt failed, and with whom.
        failure: PullFailure,
    },
    /// The root found a contribution missing or doubled; the result was withheld.
    #[error(
        "the receipt of stripe {stripe} does not match the contributions announced; the result is withheld"
    )]
    Receipt {
        /// In which stripe.
        stripe: u32,
    },
    /// The root is gone.
    #[error("rank {rank}, the root of the reduction, was lost")]
    RootLost {
        /// Who it was.
        rank: Rank,
    },
    /// The process with the scheduler is gone.
    #[error("the scheduler of the reduction was lost with rank {rank}")]
    SchedulerLost {
        /// Who it was.
        rank: Rank,
    },
    /// The time that the caller allowed is over.
    #[error("the reduction did not end in time; {}", Missing(missing))]
    Timeout {
        /// Whose contributions had not come by then.
        missing: Vec<Rank>,
    },
    /// More reductions at once than the scheduler keeps.
    #[error("more than {limit} reductions at once; wait for some before starting more")]
    TooMany {
        /// The most there may be.
        limit: usize,
    },
    /// A member could not contribute, although it called, or gave up.
    #[error("rank {rank} does not take part: {message}")]
    Withdrawn {
        /// Who.
        rank: Rank,
        /// Why.
        message: String,
    },
}

struct Missing<'a>(&'a [Rank]);

impl ReductionError {
    /// The longest message of an error, in bytes; longer ones are cut.
    pub const MESSAGE_LENGTH_MAX: usize = 1024;

    /// True if this rank found the error by itself. The others then get another error, for instance
    /// [`Withdrawn`](Self::Withdrawn), or got the result before.
    pub fn is_local(&self) -> bool {
        match self {
            Self::AgentLost | Self::Fenced { .. } | Self::SchedulerLost { .. } => true,
            Self::ContributionLost { .. }
            | Self::IdReused { .. }
            | Self::Mismatch { .. }
            | Self::Operation { .. }
            | Self::Pull { .. }
            | Self::Receipt { .. }
            | Self::RootLost { .. }
            | Self::Timeout { .. }
            | Self::TooMany { .. }
            | Self::Withdrawn { .. } => false,
        }
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("all contributions had come");
        }
        f.write_str("no contribution came from rank")?;
        self.0.iter().take(8).try_for_each(|rank| write!(f, " {rank}"))?;
        if self.0.len() > 8 {
            write!(f, " and {} more", self.0.len() - 8)
        } else {
            Ok(())
        }
    }
}
