//! The reasons for which a member stops itself.

use std::fmt;

use ropewalk_names::Rank;
use thiserror::Error;

use crate::ViewEpoch;

/// The reason for which a member takes no part in its job any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Stop {
    /// The others agreed on a view without this member.
    #[error("rank {rank} is fenced: the others go on without it since view {epoch}")]
    Fenced {
        /// This member.
        rank: Rank,
        /// The view without it.
        epoch: ViewEpoch,
    },
    /// This member reaches too few others to decide anything.
    #[error(
        "rank {rank} is in the minority: with those that it reaches it is one of {reached} of {members} members, and \
         does not reach {}",
        Ranks(lost)
    )]
    Minority {
        /// This member.
        rank: Rank,
        /// The members that it reaches, itself included.
        reached: u32,
        /// The members of the view.
        members: u32,
        /// The members that it does not reach, ascending.
        lost: Vec<Rank>,
    },
    /// A majority seemed to be reached, and did not agree in time.
    #[error(
        "rank {rank} found no majority in time: {promised} of {members} members answered, while {} could not be \
         reached",
        Ranks(lost)
    )]
    NoAgreement {
        /// This member.
        rank: Rank,
        /// The members that promised to take part in its last attempt, itself included; 0 if it made none.
        promised: u32,
        /// The members of the view.
        members: u32,
        /// The members that it does not reach, ascending.
        lost: Vec<Rank>,
    },
}

struct Ranks<'a>(&'a [Rank]);

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
