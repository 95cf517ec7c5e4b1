//! The end of a reduction, for its caller.

use std::fmt;

use ropewalk_names::{Incarnation, Rank, SchedulerLoad};
use ropewalk_reduce_core::{Contributions, End, Failure, GiveUp, Member, Site};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{ids::ReductionId, message::Circumstances};

/// The members of which a result is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The number of contributions in the result, each counted exactly once.
    pub contributions: u32,
    /// The rank where the result was made.
    pub root: Rank,
    /// The members that were lost on the way, ascending.
    pub lost: Vec<Rank>,
    /// Those of them whose contributions are not in the result, because nobody had them any more and the call said
    /// [`OnLoss::Exclude`](crate::OnLoss::Exclude).
    pub excluded: Vec<Rank>,
    /// The members of whose contributions other hosts kept fewer copies than
    /// [`Protection::Hosts`](crate::Protection::Hosts) says, as far as that was known at the end, ascending: other
    /// hosts had no memory for more, or were lost. The loss of such a member's host could have lost its contribution.
    pub unprotected: Vec<Rank>,
    /// The number of plans that the scheduler made: one, or two if all get the result, and another for each late
    /// member, loss or broken link. None if a call ended on one host without it.
    pub plans: u32,
    /// The messages between the scheduler and the other ranks from the first call until the end was decided, those of
    /// other reductions at that time among them; without the messages that tell the end. None if a call ended on one
    /// host without it.
    pub scheduler: SchedulerLoad,
}

/// The reason for which a reduction has no result. All members get the same, except for what is
/// [local](ReductionError::is_local).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[non_exhaustive]
pub enum ReductionError {
    /// The agent of this host is gone, and with it whoever would tell of a death.
    #[error("the agent of this host was lost")]
    AgentLost,
    /// Contributions are lost: their ranks left before these were safe, or their hosts were lost too.
    #[error("contributions were lost with {}", Ranks(ranks))]
    ContributionLost {
        /// The ranks that should have made them, ascending.
        ranks: Vec<Rank>,
    },
    /// The others count this process as gone, and will not hear it any more.
    #[error("this process, rank {rank} (incarnation {incarnation}), is fenced: the others count it as gone")]
    Fenced {
        /// The rank.
        rank: Rank,
        /// The life of it.
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
        /// The rank that differs.
        odd: Rank,
        /// The call of the others.
        expected: String,
        /// The call of that one.
        found: String,
    },
    /// This process reaches too few others: they may go on without it, and so it may not. Only where no launcher of
    /// ours says who is gone.
    #[error(
        "this process, rank {rank}, is in the minority and stops: with those that it reaches it is one of {reached} of \
         {members} members, and does not reach {}",
        Ranks(lost)
    )]
    Minority {
        /// The rank.
        rank: Rank,
        /// The members that it reaches, itself included.
        reached: u32,
        /// The members of the job as it last knew them.
        members: u32,
        /// The members that it does not reach, ascending.
        lost: Vec<Rank>,
    },
    /// This process found no majority in time that agrees on who is gone. Only where no launcher of ours says so.
    #[error("this process, rank {rank}, stops: {why}")]
    NoMajority {
        /// The rank.
        rank: Rank,
        /// The rest.
        why: String,
    },
    /// The operation failed or panicked.
    #[error("the operation failed on rank {rank}: {message}")]
    Operation {
        /// The rank that combined.
        rank: Rank,
        /// The error, in its own words.
        message: String,
    },
    /// A contribution is missing or doubled; the result was withheld.
    #[error(
        "the tokens of the contributions do not add up; the result is withheld (please report this defect)"
    )]
    Receipt,
    /// A source could not be read.
    #[error("rank {rank} could not read a contribution: {message}")]
    Source {
        /// The rank.
        rank: Rank,
        /// The error of the source.
        message: String,
    },
    /// No rank that lives can read these contributions.
    #[error("no rank can read {} of the contributions, the first of them number {}", members.len(),
        members.first().copied().unwrap_or_default())]
    SourcesLost {
        /// Their numbers, ascending.
        members: Vec<u32>,
    },
    /// The root is gone.
    #[error("rank {rank}, the root of the reduction, was lost")]
    RootLost {
        /// The rank.
        rank: Rank,
    },
    /// The process with the scheduler does not answer for long, and no agent says that it is gone.
    #[error("the scheduler of the reduction was lost with rank {rank}")]
    SchedulerLost {
        /// The rank.
        rank: Rank,
    },
    /// The time that a caller allowed is over.
    #[error(
        "the reduction did not end in the time that rank {rank} allowed; {}",
        Missing(missing)
    )]
    Timeout {
        /// The rank whose time was over first.
        rank: Rank,
        /// The ranks whose contributions had not come by then, ascending.
        missing: Vec<Rank>,
    },
    /// A rank's program [cancelled](crate::Reduction::cancel) the reduction.
    #[error("rank {rank} cancelled the reduction; {}", Missing(missing))]
    Cancelled {
        /// The rank.
        rank: Rank,
        /// The ranks whose contributions had not come by then, ascending.
        missing: Vec<Rank>,
    },
    /// Processes that live do not reach each other.
    #[error("ranks {one} and {other} live and do not reach each other, and neither do others")]
    Unreachable {
        /// One of them.
        one: Rank,
        /// The other one.
        other: Rank,
    },
    /// A member could not contribute, although it called, or gave up.
    #[error("rank {rank} does not take part: {message}")]
    Withdrawn {
        /// The rank.
        rank: Rank,
        /// Its reason.
        message: String,
    },
}

struct Ranks<'a>(&'a [Rank]);

struct Missing<'a>(&'a [Rank]);

impl ReductionError {
    /// The longest message of an error, in bytes; longer ones are cut.
    pub const MESSAGE_LENGTH_MAX: usize = 1024;

    /// Says if this rank found the error by itself. The others then get another error, for instance
    /// [`Withdrawn`](Self::Withdrawn), or got the result before.
    pub fn is_local(&self) -> bool {
        matches!(
            self,
            Self::AgentLost
                | Self::Fenced { .. }
                | Self::SchedulerLost { .. }
                | Self::IdReused { .. }
                | Self::Minority { .. }
                | Self::NoMajority { .. }
        )
    }
}

/// The end of a reduction of these members, as they are told it.
pub(crate) fn verdict(
    end: End,
    root: Rank,
    members: &[Rank],
    contributions: Contributions,
    circumstances: Circumstances,
) -> Result<Receipt, ReductionError> {
    let rank_of = |member: Member| {
        let rank = members.get(member.0 as usize).copied();
        rank.unwrap_or(Rank(u32::MAX))
    };
    let ranks_of = |members: Vec<Member>| members.into_iter().map(rank_of).collect::<Vec<_>>();
    let rank_at = |site: Site| Rank(site.0);
    Err(match end {
        End::Done { root, excluded } => {
            return Ok(Receipt {
                contributions: contributions.members(members.len()).len() as u32 - excluded.len() as u32,
                root: rank_of(root),
                lost: circumstances.lost,
                excluded: ranks_of(excluded),
                unprotected: circumstances.unprotected,
                plans: circumstances.plans,
                scheduler: circumstances.load,
            });
        }
        End::Mismatch(odd) => {
            let (expected, found) = circumstances.calls.unwrap_or_default();
            ReductionError::Mismatch {
                odd: rank_of(odd),
                expected,
                found,
            }
        }
        End::Lost(lost) if contributions.are_shared() => ReductionError::SourcesLost {
            members: lost.into_iter().map(|member| member.0).collect(),
        },
        End::Lost(lost) => ReductionError::ContributionLost {
            ranks: ranks_of(lost),
        },
        End::RootLost => ReductionError::RootLost { rank: root },
        End::Failed(Failure::Operation { site, why }) => ReductionError::Operation {
            rank: rank_at(site),
            message: why,
        },
        End::Failed(Failure::Source { site, why }) => ReductionError::Source {
            rank: rank_at(site),
            message: why,
        },
        End::Failed(Failure::Tokens) => ReductionError::Receipt,
        End::Failed(Failure::Unreachable(one, other)) => ReductionError::Unreachable {
            one: rank_at(one),
            other: rank_at(other),
        },
        End::GivenUp {
            member,
            reason: GiveUp::TimedOut,
            missing,
        } => ReductionError::Timeout {
            rank: rank_of(member),
            missing: ranks_of(missing),
        },
        End::GivenUp {
            member,
            reason: GiveUp::Cancelled,
            missing,
        } => ReductionError::Cancelled {
            rank: rank_of(member),
            missing: ranks_of(missing),
        },
        End::GivenUp {
            member,
            reason: GiveUp::Withdrawn(message) | GiveUp::Left(message),
            ..
        } => ReductionError::Withdrawn {
            rank: rank_of(member),
            message,
        },
    })
}

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 8;
        f.write_str("rank")?;
        let shown = self.0.iter().take(SHOWN_MAX);
        shown.into_iter().try_for_each(|rank| write!(f, " {rank}"))?;
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("all contributions had come"),
            ranks => write!(f, "no contribution came from {}", Ranks(ranks)),
        }
    }
}
