//! Who waits in which fence, and when it is over.

use std::collections::{BTreeMap, VecDeque};

use super::{AbsentMembers, FenceId, FenceScope};
use crate::RankSet;

/// The fences of one group in which somebody waits, as one agent sees them. `W` answers a waiting process.
#[derive(Clone, Debug)]
pub(super) struct Fences<W> {
    open: BTreeMap<FenceId, OpenFence<W>>,
}

#[derive(Clone, Debug)]
struct OpenFence<W> {
    /// Who waits, here and below.
    entered: RankSet,
    /// Those of them that the agent above knows of.
    reported: RankSet,
    waiting: BTreeMap<u32, W>,
    /// Other threads of processes that wait already: they take part in the fence after this one.
    next: VecDeque<(u32, W)>,
    /// Somebody was told that it began.
    is_known: bool,
}

/// A fence's view of its group: the ranks, the policy about absent ones, and who decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Membership<'a> {
    pub(super) size: u32,
    pub(super) local: &'a RankSet,
    /// The local ranks and those below.
    pub(super) subtree: &'a RankSet,
    /// Those of the subtree that are gone.
    pub(super) absent: &'a RankSet,
    /// Those of them whose agent is lost.
    pub(super) lost: &'a RankSet,
    /// Those anywhere that are known to have failed.
    pub(super) dead: &'a RankSet,
    pub(super) policy: AbsentMembers,
    pub(super) above: Above,
}

/// Who decides about fences of more than one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Above {
    /// This agent.
    Nobody,
    /// The agent above.
    Parent,
    /// Nobody any more.
    Lost,
}

/// The consequence of an event for a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is over for these.
    Over {
        members: RankSet,
        failure: Option<Failure>,
    },
    /// The agent above is to know that these wait.
    Report { members: RankSet },
    /// Others are still to come.
    Waits,
}

/// Why a fence cannot complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// This rank will never come.
    Gone(u32),
    /// The agent above is gone.
    Lost,
}

impl<W> Default for OpenFence<W> {
    fn default() -> Self {
        Self {
            entered: RankSet::default(),
            reported: RankSet::default(),
            waiting: BTreeMap::new(),
            next: VecDeque::new(),
            is_known: false,
        }
    }
}

impl<W> Default for Fences<W> {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
        }
    }
}

impl<W> Fences<W> {
    /// A local rank comes to a fence. [`settle`](Self::settle) it next.
    pub(super) fn enter(&mut self, id: &FenceId, rank: u32, waiter: W) {
        let fence = self.open.entry(id.clone()).or_default();
        if fence.entered.insert(rank) {
            fence.waiting.insert(rank, waiter);
        } else {
            fence.next.push_back((rank, waiter));
        }
    }

    /// Ranks below wait in a fence. [`settle`](Self::settle) it next.
    pub(super) fn enter_below(&mut self, id: &FenceId, members: &RankSet) {
        let fence = self.open.entry(id.clone()).or_default();
        fence.entered = fence.entered.union(members);
    }

    /// Ranks are gone, and so in no fence any more. [`settle`](Self::settle) all next.
    pub(super) fn leave(&mut self, ranks: &RankSet) {
        self.open.retain(|_, fence| {
            fence.entered = fence.entered.difference(ranks);
            fence.reported = fence.reported.difference(ranks);
            fence.waiting.retain(|rank, _| !ranks.contains(*rank));
            fence.next.retain(|(rank, _)| !ranks.contains(*rank));
            !fence.entered.is_empty()
        });
    }

    /// Returns true only at the first look at a fence in which somebody waits.
    pub(super) fn is_news(&mut self, id: &FenceId) -> bool {
        let open = self.open.get_mut(id).filter(|fence| !fence.entered.is_empty());
        open.is_some_and(|fence| !std::mem::replace(&mut fence.is_known, true))
    }

    /// The fence in which a local rank waits.
    pub(super) fn of(&self, rank: u32) -> Option<&FenceId> {
        let mut open = self.open.iter();
        Some(open.find(|(_, fence)| fence.waiting.contains_key(&rank))?.0)
    }

    /// The fences in which somebody waits.
    pub(super) fn ids(&self) -> Vec<FenceId> {
        self.open.keys().cloned().collect()
    }

    /// Decides if a fence is over, is to be reported to the agent above, or waits.
    pub(super) fn settle(&mut self, id: &FenceId, group: Membership<'_>) -> Settled {
        let Some(fence) = self.open.get_mut(id) else {
            return Settled::Waits;
        };
        if fence.entered.is_empty() {
            return Settled::Waits;
        }
        let is_here = id.scope == FenceScope::Node;
        if group.above == Above::Lost && !is_here {
            return fence.over(Some(Failure::Lost));
        }
        let decides = is_here || group.above == Above::Nobody;
        let failure = match group.policy {
            AbsentMembers::Exclude => None,
            AbsentMembers::Fail | AbsentMembers::FailUntilReplaced => group.first_gone(id),
        };
        if decides && failure.is_some() {
            return fence.over(failure.map(Failure::Gone));
        }
        let complete = group.is_complete(id, &fence.entered);
        if decides && complete {
            return fence.over(None);
        }
        // What is late, or cannot complete, does not wait for the others below.
        let is_due = complete || failure.is_some() || !fence.reported.is_empty();
        if !decides && is_due && fence.reported != fence.entered {
            let members = fence.entered.difference(&fence.reported);
            fence.reported = fence.entered.clone();
            return Settled::Report { members };
        }
        Settled::Waits
    }

    /// A fence is over for these ranks: who of them waits here, and whether others began with the next one, which
    /// is to be settled then.
    pub(super) fn end(&mut self, id: &FenceId, members: &RankSet) -> (Vec<(u32, W)>, bool) {
        let Some(fence) = self.open.get_mut(id) else {
            return (Vec::new(), false);
        };
        fence.entered = fence.entered.difference(members);
        fence.reported = fence.reported.difference(members);
        let (released, waiting) = std::mem::take(&mut fence.waiting)
            .into_iter()
            .partition(|(rank, _)| members.contains(*rank));
        fence.waiting = waiting;
        fence.is_known = false;
        let released: BTreeMap<u32, W> = released;
        let mut began = false;
        let mut later = VecDeque::new();
        for (rank, waiter) in std::mem::take(&mut fence.next) {
            if fence.entered.insert(rank) {
                fence.waiting.insert(rank, waiter);
                began = true;
            } else {
                later.push_back((rank, waiter));
            }
        }
        fence.next = later;
        if fence.entered.is_empty() {
            self.open.remove(id);
        }
        (released.into_iter().collect(), began)
    }
}

impl<W> OpenFence<W> {
    fn over(&self, failure: Option<Failure>) -> Settled {
        Settled::Over {
            members: self.entered.clone(),
            failure,
        }
    }
}

impl Membership<'_> {
    /// Returns true if all ranks of the subtree that take part are there or gone.
    fn is_complete(&self, id: &FenceId, entered: &RankSet) -> bool {
        let members = match &id.scope {
            FenceScope::Node => self.local,
            FenceScope::Ranks(ranks) => ranks,
            FenceScope::World => {
                // Counting first spares comparing sets at every arrival.
                if u64::from(entered.len()) + u64::from(self.absent.len()) < u64::from(self.subtree_size()) {
                    return false;
                }
                self.subtree
            }
        };
        let expected = match self.above {
            Above::Nobody if matches!(id.scope, FenceScope::World) => RankSet::range(0, self.size),
            Above::Nobody => members.clone(),
            Above::Lost | Above::Parent => members.intersection(self.subtree),
        };
        expected.difference(self.absent).is_subset(entered)
    }

    fn subtree_size(&self) -> u32 {
        match self.above {
            Above::Nobody => self.size,
            Above::Lost | Above::Parent => self.subtree.len(),
        }
    }

    /// A rank that takes part, is gone, and is not done without.
    fn first_gone(&self, id: &FenceId) -> Option<u32> {
        if self.absent.is_empty() && self.dead.is_empty() {
            return None;
        }
        let mut gone = self.absent.union(self.dead);
        if self.policy == AbsentMembers::FailUntilReplaced {
            gone = gone.difference(self.lost);
        }
        match &id.scope {
            FenceScope::Node => gone.intersection(self.local).first(),
            FenceScope::Ranks(ranks) => gone.intersection(ranks).first(),
            FenceScope::World => gone.first(),
        }
    }
}
