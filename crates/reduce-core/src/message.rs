//! The messages of workers and the scheduler. The scheduler's are about 3 per site and session; those between
//! workers are one for each chunk or less. Chunks themselves go from worker to worker.

use serde::{Deserialize, Serialize};

use super::{
    canary::{Canary, is_put_back},
    chunks::Chunking,
    ids::{Member, PlanId, Session, ShareId, Site, StreamId, Term, Token},
    rates::RateBounds,
    scheduler::{Call, End, Failure, GiveUp, Roster},
};

/// From a worker, or an agent, to the scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToScheduler {
    /// This site holds originals of a session.
    Announce {
        /// The session.
        session: Session,
        /// The collective as this site was called with it.
        call: Call,
        /// The contributions it holds, and their tokens.
        originals: Vec<(Member, Token)>,
        /// Their data come with the message, and stay with the scheduler until the session has ended: see
        /// [`Call::may_be_enclosed`].
        are_enclosed: bool,
    },
    /// The root's watermarks of shares: how many chunks of each class are merged.
    Progress {
        /// The session.
        session: Session,
        /// The generation of the roster that it is of.
        generation: u32,
        /// The shares, and their watermarks by class.
        merged: Vec<(ShareId, Vec<u32>)>,
    },
    /// This site holds the whole result.
    Complete {
        /// The session.
        session: Session,
        /// The seat whose plans it followed last.
        term: Term,
        /// The generation of the roster that the result is of.
        generation: u32,
        /// The sum of the tokens of all that was merged.
        tokens: Token,
        /// All sites are to hold the result, and each says that it does.
        is_for_all: bool,
        /// The result comes with the message, and goes with the end to all: see [`Call::may_end_with_result`].
        is_enclosed: bool,
    },
    /// The rates at which this site sends to others.
    Rates(Vec<(Site, RateBounds)>),
    /// Two neighbours of a plan do not reach each other, although both count as alive.
    Unreachable {
        /// The session.
        session: Session,
        /// The plan.
        plan: PlanId,
        /// The neighbour; this site itself if it does not hold what the plan says.
        site: Site,
    },
    /// The operation panicked, or tokens did not add up: a retry would not help.
    Failed {
        /// The session.
        session: Session,
        /// The reason.
        failure: Failure,
    },
    /// A member gives the session up, for all.
    GiveUp {
        /// The session.
        session: Session,
        /// The member.
        member: Member,
        /// Its reason.
        reason: GiveUp,
    },
    /// This site contributes to nothing any more.
    Leave {
        /// Its reason.
        why: String,
    },
    /// The answer to a new term: all that this site knows of its sessions. Nothing of an older term is sent or merged
    /// by it afterwards.
    Standing {
        /// The new term.
        term: Term,
        /// The sessions that have not ended here, and those that have.
        sessions: Vec<Standing>,
    },
}

/// The state of one session on one site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The session.
    pub session: Session,
    /// The collective as this site was called with it.
    pub call: Call,
    /// The contributions it holds, and their tokens.
    pub originals: Vec<(Member, Token)>,
    /// The shares that it merged as root.
    pub shares: Vec<MergedShare>,
    /// How the vector is cut, once that is decided.
    pub chunking: Option<Chunking>,
    /// The newest roster that this site was told of.
    pub roster: Option<Roster>,
    /// The end, if it was decided.
    pub end: Option<End>,
}

/// A share at the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedShare {
    /// The share.
    pub id: ShareId,
    /// The members whose contributions it is of.
    pub members: Vec<Member>,
    /// The sum of their tokens.
    pub tokens: Token,
    /// How many chunks are merged, by class.
    pub merged: Vec<u32>,
}

impl ToScheduler {
    /// Says if other sites are likely to say the same at about this time: a relay waits for theirs. What one site alone
    /// has to say does not wait.
    pub fn is_said_by_many(&self) -> bool {
        match self {
            Self::Announce { .. }
            | Self::Rates(_)
            | Self::GiveUp { .. }
            | Self::Leave { .. }
            | Self::Standing { .. } => true,
            Self::Complete { is_for_all, .. } => *is_for_all,
            Self::Progress { .. } | Self::Unreachable { .. } | Self::Failed { .. } => false,
        }
    }
}

impl Standing {
    /// Says if what the root has merged makes sense in a group of so many ranks.
    pub(crate) fn is_valid(&self, ranks: usize) -> bool {
        let members = self.call.contributions.members(ranks);
        let is_member = |member: &Member| members.contains(&member.0);
        let (Some(roster), Some(chunking)) = (&self.roster, &self.chunking) else {
            return false;
        };
        let is_chunking = chunking.is_valid()
            && chunking.bytes == self.call.bytes
            && chunking.blocks == self.call.contributions.blocks(ranks);
        let is_share = |share: &MergedShare| {
            let cut = chunking.cut(share.id);
            let fits = |(class, merged): (usize, &u32)| *merged <= cut.chunks_of(class as u16);
            share.id < ShareId::SPREAD
                && self.call.contributions.is_share(share.id, &share.members)
                && share.members.iter().all(is_member)
                && share.merged.len() == usize::from(cut.classes())
                && share.merged.iter().enumerate().all(fits)
        };
        let shares = self.shares.iter().flat_map(|share| &share.members);
        let mut counted: Vec<Member> = shares.chain(&roster.excluded).copied().collect();
        let count = counted.len();
        counted.sort();
        counted.dedup();
        is_chunking
            && roster.generation < u32::MAX
            && (roster.root.0 as usize) < ranks
            && roster.excluded.iter().all(is_member)
            && (roster.excluded.len() < members.len() || members.is_empty())
            && counted.len() == count
            && self.shares.iter().all(is_share)
    }
}

/// From the scheduler to a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromScheduler {
    /// A part of a plan.
    Row(Row),
    /// The session is over.
    Ended {
        /// The session.
        session: Session,
        /// The seat that decided.
        term: Term,
        /// The end.
        end: End,
    },
    /// A new scheduler asks for the standing of all sessions.
    NewTerm(Term),
}

/// One site's part of a plan for one share.
///
/// A plan takes the place of all older ones for the share. Where it [keeps](Self::kept) the first chunks of the classes
/// for the older plans, those go on with these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The session.
    pub session: Session,
    /// The plan.
    pub plan: PlanId,
    /// The share.
    pub share: ShareId,
    /// How the vector is cut; the same in all plans of a session.
    pub chunking: Chunking,
    /// By class: the chunks before this index stay with the older plans. Empty if nothing does.
    pub kept: Vec<u32>,
    /// The nodes on this site; none if it has no part in this plan.
    pub nodes: Vec<RowNode>,
    /// The members whose contributions come with this message: the site holds them from now on.
    pub given: Vec<Member>,
    /// For those who merge it: the members of the share, whose tokens have to add up. A result that is
    /// [spread](ShareId::SPREAD) counts as one contribution, that of the root.
    pub members: Vec<(Member, Token)>,
    /// For those who merge it: the number of members in all shares together, after which they are complete.
    pub members_in_all: u32,
    /// Who takes part. If it is newer than what is known, all of the session before is void.
    pub roster: Roster,
    /// The plan was made before the session was called for, for a call like this one. It is of no use for any other,
    /// and nobody knows the tokens of its members yet.
    pub ahead_of: Option<Box<Call>>,
}

impl Row {
    /// Says if the plan is for a call like this one.
    pub(crate) fn is_for(&self, call: &Call) -> bool {
        let is_for_another = self.ahead_of.as_ref().is_some_and(|known| **known != *call);
        !is_for_another || is_put_back(Canary::PlanAheadOfAnyCall)
    }

    /// Says if it makes sense, and fits to how the vector is cut already.
    pub(crate) fn is_valid(&self, chunking: Option<Chunking>) -> bool {
        let classes = self.chunking.cut(self.share).classes();
        let is_node = |node: &RowNode| node.class < classes && !node.inputs.is_empty();
        self.chunking.is_valid()
            && (self.share == ShareId::SPREAD
                || self.chunking.blocks == 1
                || self.share.0 < self.chunking.blocks)
            && chunking.is_none_or(|chunking| chunking == self.chunking)
            && (self.kept.is_empty() || self.kept.len() == usize::from(classes))
            && self.nodes.iter().all(is_node)
    }
}

/// A node of a tree: what it folds, in this order, and who gets the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowNode {
    /// The class of chunks.
    pub class: u16,
    /// The node in the tree of that class.
    pub node: u32,
    /// The first chunk, by its index in the class; the chunks before it are merged, or stay with older plans.
    pub from: u32,
    /// Folded from left to right.
    pub inputs: Vec<Input>,
    /// The site and the node that get the outcome; `None` at the root, where it is merged into the result.
    pub parent: Option<(Site, u32)>,
}

/// One thing that a node folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// An original that the site holds.
    Own(Member),
    /// The outcome of another node of the tree, on that site.
    Child(Site, u32),
    /// The result as far as this site holds it; alone.
    Final,
}

/// Sent with each chunk, from child to parent in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkHeader {
    /// The session.
    pub session: Session,
    /// The parent's node.
    pub to: StreamId,
    /// The child's node in the same tree, which sends it.
    pub from: u32,
    /// The chunk, by its index in the class.
    pub index: u32,
    /// The sum of the tokens of what is folded in it.
    pub tokens: Token,
}

impl ChunkHeader {
    pub(crate) fn sender(&self) -> StreamId {
        StreamId {
            node: self.from,
            ..self.to
        }
    }
}

/// From parent to child in a tree: how far the child may send.
///
/// The child sends a chunk as soon as it is folded and granted, so that a chunk waits for one message on its way up
/// and not for three (ready, asked for, sent), each of which would wait behind data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The session.
    pub session: Session,
    /// The child's node.
    pub to: StreamId,
    /// The chunks before this index are not needed any more.
    pub taken: u32,
    /// The chunks before this index have a place at the parent.
    pub until: u32,
}
