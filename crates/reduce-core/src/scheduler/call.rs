//! The call of a collective, alike on all members.

use std::ops::Range;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::End;
use crate::{
    ids::{Member, ShareId},
    planner::Order,
};

/// A collective as a member calls it. All members have to call it alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Bytes of each contribution.
    pub bytes: u64,
    /// Bytes of an element, which is never cut.
    pub element_bytes: u32,
    /// The contributions that the result is of.
    pub contributions: Contributions,
    /// The rank that gets the result, by its place in the group.
    pub root: Member,
    /// All ranks get the result, from the root.
    pub is_spread: bool,
    /// The order of folding.
    pub order: Order,
    /// A digest of the operation and the type of its elements.
    pub operation: u64,
    /// The answer to the loss of contributions with all their copies.
    pub on_loss: OnLoss,
    /// The answer to the loss of the root.
    pub on_root_loss: OnRootLoss,
    /// The session is another way to the end of the one that has the same number in this group. It has a result only if
    /// all ranks call for it, and ends without one as soon as that other one is called for.
    pub gives_way_to: Option<u64>,
}

/// The contributions of a collective, and how they make its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contributions {
    /// Each rank of the group makes one: the member of its own number. They are folded.
    #[default]
    Each,
    /// So many, each of which any number of ranks may hold, as files that all can read. They are folded. The collective
    /// begins when all ranks that live have told which ones they hold, and none is lost while a rank that holds it
    /// lives.
    Shared(u32),
    /// This rank makes the only one, which is the result.
    One(Member),
    /// Each rank makes one. The result holds them side by side, in the order of the ranks.
    SideBySide,
}

impl Call {
    /// The most bytes of a contribution that comes with its announcement.
    pub const ENCLOSED_BYTES_MAX: u64 = 8 << 10;
    /// The most bytes that come so from a whole group, if they are folded.
    const ENCLOSED_IN_ALL_MAX: u64 = 256 << 10;
    /// The same of contributions that stand side by side: the root gets all of them anyway.
    const GATHERED_IN_ALL_MAX: u64 = 1 << 20;
    /// The most bytes of the messages with which a site tells others a result.
    const RESULTS_MAX: u64 = 256 << 10;

    /// Says if the contributions of a group of so many ranks are so short that they come with their announcements. If
    /// all did, the scheduler hands them to the root with its row, and nobody else has a part in the plan.
    pub fn may_be_enclosed(&self, ranks: usize) -> bool {
        self.bytes <= Self::ENCLOSED_BYTES_MAX
            && self.bytes.saturating_mul(ranks as u64) <= self.enclosed_in_all_max()
            && matches!(
                self.contributions,
                Contributions::Each | Contributions::SideBySide
            )
    }

    /// The most bytes of contributions that come with their announcements from a whole group.
    pub fn enclosed_in_all_max(&self) -> u64 {
        match self.contributions {
            Contributions::SideBySide => Self::GATHERED_IN_ALL_MAX,
            _ => Self::ENCLOSED_IN_ALL_MAX,
        }
    }

    /// The most bytes of a result that goes with the end of its session to all. Each rank keeps it as long as the end:
    /// a new scheduler may have to tell it to others.
    pub const RESULT_BYTES_MAX: u64 = 4 << 10;

    /// Says if the result for all ranks of a group of so many is so short that it goes with the end. A site sends the
    /// end to so many `receivers` at most.
    pub fn may_end_with_result(&self, ranks: usize, receivers: usize) -> bool {
        let blocks = self.contributions.blocks(ranks);
        let bytes = self.bytes.saturating_mul(blocks.into());
        self.is_spread
            && bytes <= Self::RESULT_BYTES_MAX
            && bytes.saturating_mul(receivers as u64) <= Self::RESULTS_MAX
    }
}

impl Contributions {
    /// The most contributions that are shared: a row has to name each, and must fit into one message.
    pub const SHARED_MAX: u32 = 16_384;

    /// The numbers of the members in a group of so many ranks.
    pub fn members(self, ranks: usize) -> Range<u32> {
        match self {
            Self::Each | Self::SideBySide => 0..ranks as u32,
            Self::Shared(count) => 0..count,
            Self::One(member) => member.0..member.0.saturating_add(1),
        }
    }

    /// The number of blocks of the result in a group of so many ranks.
    pub fn blocks(self, ranks: usize) -> u32 {
        match self {
            Self::SideBySide => ranks as u32,
            Self::Each | Self::Shared(_) | Self::One(_) => 1,
        }
    }

    /// Any rank may hold any of them; otherwise each is of the rank of its number.
    pub fn are_shared(self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Says if a share may have these members.
    pub(crate) fn is_share(self, share: ShareId, members: &[Member]) -> bool {
        self != Self::SideBySide || *members == [Member(share.0)]
    }
}

/// The answer to the loss of contributions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// The session ends with [`End::Lost`] on all ranks.
    #[default]
    Fail,
    /// The session goes on without those members, all chunks alike; [`End::Done`] lists them.
    Exclude,
}

/// The answer to the loss of the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnRootLoss {
    /// The session ends with [`End::RootLost`] on all ranks.
    #[default]
    Fail,
    /// This member gets the result, unless it is lost too. Originals are kept until the end, so that it starts from
    /// nothing.
    MoveTo(Member),
    /// The lowest rank of the group that lives gets the result, which starts from nothing.
    MoveToLowest,
}
