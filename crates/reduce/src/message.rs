//! The messages between processes: those of the core, with what the core does not need to know.

use bytes::Bytes;
use ropewalk_membership::ProcessGroup;
use ropewalk_names::{Identity, Rank, RegionHandle, SchedulerLoad};
use ropewalk_reduce_core::{FromScheduler, Grant, Member, Session, ToScheduler, Token};
use serde::{Deserialize, Serialize};

use crate::signature::Signature;

/// All that has to be known of a contribution wherever its memory is; the label under which an agent holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contribution {
    /// The reduction.
    pub session: Session,
    /// Its members, if they are not all ranks of the job.
    pub members: Option<ProcessGroup>,
    /// The call of the contributor.
    pub signature: Signature,
    /// The number of the contributor in the group.
    pub member: Member,
    /// The random token.
    pub token: Token,
    /// The length of the encoded data in bytes.
    pub length: u64,
}

/// A reduction is introduced to a scheduler that may not know its group yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Introduction {
    /// The reduction.
    pub session: Session,
    /// Its members, if they are not all ranks of the job.
    pub members: Option<ProcessGroup>,
    /// The sender's call; `None` if that could not be made.
    pub signature: Option<Signature>,
}

/// A message with its number: those of one rank ascend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbered<M> {
    /// Its number.
    pub number: u64,
    /// The message.
    pub message: M,
}

/// Messages of one kind for one rank, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Batch<M> {
    /// The number of the last message before them, if nobody has answered that yet: it has to be heard first.
    pub after: u64,
    /// The messages.
    pub messages: Vec<Numbered<M>>,
}

/// Messages that go through another rank, because sender and receiver do not reach each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Forwarded {
    /// The sender.
    pub from: Identity,
    /// The receiver.
    pub to: Rank,
    /// The messages.
    pub letters: Letters,
}

/// Messages of a scheduler for several ranks of a relay's group. A result that the end of its session brings to all of
/// them is here once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ForGroup {
    results: Vec<(Session, Bytes)>,
    letters: Vec<Forwarded>,
}

impl ForGroup {
    /// The messages in their order.
    pub(crate) fn pack(mut letters: Vec<Forwarded>) -> Self {
        let mut results: Vec<(Session, Bytes)> = Vec::new();
        for (session, result) in letters.iter_mut().flat_map(Forwarded::ends) {
            let Some(bytes) = result else { continue };
            match results.iter().find(|(known, _)| *known == session) {
                None => results.extend(result.take().map(|result| (session, result))),
                Some((_, known)) if known == bytes => *result = None,
                Some(_) => {}
            }
        }
        Self { results, letters }
    }

    /// The messages as they were packed.
    pub(crate) fn unpack(mut self) -> Vec<Forwarded> {
        for (session, result) in self.letters.iter_mut().flat_map(Forwarded::ends) {
            let packed = self.results.iter().find(|(known, _)| *known == session);
            if let Some((_, packed)) = packed {
                result.get_or_insert_with(|| packed.clone());
            }
        }
        self.letters
    }
}

impl Forwarded {
    /// The sessions that end, and their results.
    fn ends(&mut self) -> impl Iterator<Item = (Session, &mut Option<Bytes>)> {
        let to_site = match &mut self.letters {
            Letters::ToSite(batch) => &mut batch.messages[..],
            _ => &mut [],
        };
        to_site
            .iter_mut()
            .filter_map(|numbered| match numbered.message.message {
                FromScheduler::Ended { session, .. } => {
                    Some((session, &mut numbered.message.circumstances.result))
                }
                _ => None,
            })
    }
}

/// A batch of some kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Letters {
    /// For the scheduler.
    ToSeat(Batch<ToSeat>),
    /// Of the scheduler.
    ToSite(Batch<ToSite>),
    /// From a parent in a tree to its children.
    Grants(Batch<Grant>),
}

/// From a rank to the scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum ToSeat {
    /// A message of the rank's worker.
    Worker {
        /// The reductions of which the message speaks.
        introductions: Vec<Introduction>,
        /// The message.
        message: ToScheduler,
        /// With an announcement, the contribution itself, if it is
        /// [short](ropewalk_reduce_core::Call::may_be_enclosed). With a completion, the result, if that
        /// [is](ropewalk_reduce_core::Call::may_end_with_result); with a standing, the results that came with ends.
        enclosed: Vec<(Session, Bytes)>,
    },
    /// No host keeps as many copies of the rank's contribution as its call wished for.
    Unprotected(Session),
    /// The rank keeps a copy of the contribution of another one.
    Copy(KeptCopy),
    /// The rank has read shared contributions, and they have these digests.
    Digests {
        /// The reduction.
        session: Session,
        /// The digests, by the contributions' numbers.
        digests: Vec<(Member, [u8; 32])>,
    },
}

impl ToSeat {
    /// Says if other ranks are likely to say the same at about this time.
    pub(crate) fn is_said_by_many(&self) -> bool {
        match self {
            Self::Worker { message, .. } => message.is_said_by_many(),
            Self::Unprotected(_) | Self::Copy(_) | Self::Digests { .. } => true,
        }
    }
}

/// A copy of a contribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptCopy {
    /// The rank whose contribution it is.
    pub owner: Rank,
    /// The contribution.
    pub contribution: Contribution,
    /// Where it is read from [`begin`](Self::begin) on.
    pub handle: RegionHandle,
    /// The first byte of the contribution that the copy has. The root has merged those before it.
    pub begin: u64,
}

/// From the scheduler to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToSite {
    /// The message.
    pub message: FromScheduler,
    /// With an end, what the core does not know of it.
    pub circumstances: Circumstances,
    /// With a row, the copies that it names as children, and who keeps each.
    pub copies: Vec<(Rank, KeptCopy)>,
    /// With a row, the contributions that it gives.
    pub given: Vec<(Member, Bytes)>,
}

/// The circumstances of a reduction's end: losses, plans, differing calls and a short result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Circumstances {
    /// The members that were lost until then, ascending.
    pub lost: Vec<Rank>,
    /// The number of plans that the scheduler made.
    pub plans: u32,
    /// The members of whose contributions other hosts keep fewer copies than wished for, ascending.
    pub unprotected: Vec<Rank>,
    /// The scheduler's messages.
    pub load: SchedulerLoad,
    /// If members called for different things: the call of the others, and that of the odd one.
    pub calls: Option<(String, String)>,
    /// The result, if it is short and all get it.
    pub result: Option<Bytes>,
}
