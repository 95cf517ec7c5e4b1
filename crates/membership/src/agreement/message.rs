//! The messages by which members agree on views.

use std::collections::BTreeSet;

use ropewalk_names::Rank;
use serde::{Deserialize, Serialize};

use crate::View;

/// The number of an attempt to agree on the next view. A later attempt of the same member has a larger one, and no two
/// members have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    pub(super) round: u64,
    pub(super) proposer: Rank,
}

/// A message between members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreementMessage {
    /// The newest view that the sender knows to be decided.
    pub view: View,
    /// The rest, which concerns the view after that one.
    pub word: Word,
}

/// The rest of an [`AgreementMessage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The sender suspects these members, and asks the receiver to propose a view without them.
    Suspects(BTreeSet<Rank>),
    /// The sender wants to propose a view.
    Prepare(Ballot),
    /// The sender takes part in no attempt before this one.
    Promise {
        /// The attempt.
        ballot: Ballot,
        /// The newest proposal that the sender accepted, and in which attempt.
        accepted: Option<(Ballot, View)>,
    },
    /// The sender promised to take part in no attempt before this one.
    Refuse(Ballot),
    /// The sender proposes a view.
    Propose {
        /// The attempt.
        ballot: Ballot,
        /// The view.
        next: View,
    },
    /// The sender accepts the proposal of an attempt.
    Accept(Ballot),
    /// The sender's view is decided; the receiver answers that it knows.
    Decided,
    /// The sender knows its view.
    Known,
}
