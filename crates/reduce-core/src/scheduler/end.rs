//! How a session ends, and who takes part until then.

use serde::{Deserialize, Serialize};

use super::{Member, Site};

/// Who takes part, as decided so far. It changes when the root moves or members are excluded, and everything begins
/// anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Counts the changes.
    pub generation: u32,
    /// The rank that gets the result, by its place in the group.
    pub root: Member,
    /// Members whose contributions are lost, ascending.
    pub excluded: Vec<Member>,
}

/// How a session ends, on all its sites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The root holds the result.
    Done {
        /// The rank that has it, by its place in the group.
        root: Member,
        /// The members that are not in it, ascending.
        excluded: Vec<Member>,
    },
    /// The rank at this place in the group called another collective than the others.
    Mismatch(Member),
    /// The contributions of these members are lost, with all their copies.
    Lost(Vec<Member>),
    /// The root is lost.
    RootLost,
    /// It cannot be done.
    Failed(Failure),
    /// A member gave it up.
    GivenUp {
        /// The member.
        member: Member,
        /// Its reason.
        reason: GiveUp,
        /// The ranks, by their places in the group, whose contributions had not come by then, ascending.
        missing: Vec<Member>,
    },
}

/// The reason for which nobody can do what was called for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// The operation failed or panicked.
    Operation {
        /// The site where it did.
        site: Site,
        /// The error, in its own words.
        why: String,
    },
    /// A contribution that a site said it holds cannot be read there.
    Source {
        /// The site.
        site: Site,
        /// The error, in its own words.
        why: String,
    },
    /// The tokens of a chunk or of the result do not add up: a contribution is missing or doubled.
    Tokens,
    /// These sites live and do not reach each other, and other pairs neither.
    Unreachable(Site, Site),
}

/// The reason for which a member gives a session up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GiveUp {
    /// Its time-out has passed.
    TimedOut,
    /// Its program does not want the result any more.
    Cancelled,
    /// It cannot contribute, for this reason.
    Withdrawn(String),
    /// It leaves the job, for this reason, and takes part in nothing any more.
    Left(String),
}
