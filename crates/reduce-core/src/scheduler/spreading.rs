//! The result on its way from the root to all other ranks: along the trees of a reduction, read the other way.
//!
//! A rank sends on what it holds for good, and begins where the one before it says. So a lost rank costs nothing but
//! another plan, and what was spread before stays.

use std::{collections::BTreeSet, time::Duration};

use super::{PlanId, Site};
use crate::{
    message::{Input, RowNode},
    tree::{Operand, Tree},
};

/// How far the result of a session is spread.
#[derive(Debug, Default)]
pub(super) struct Spread {
    pub(super) plan: PlanId,
    /// The ranks to which the newest plan leads.
    pub(super) receivers: BTreeSet<Site>,
    /// Another plan would be better.
    pub(super) is_stale: bool,
    /// The number of plans, and when the newest one was made, or could have been.
    plans: u32,
    since: Option<Duration>,
    /// When the ranks that have called since then get a plan, if others do not call before.
    due: Option<Duration>,
    /// The scheduler's side has the result, and tells it with the end.
    pub(super) is_enclosed: bool,
    /// The ranks that hold the whole result.
    pub(super) complete: BTreeSet<Site>,
    /// The ranks that have yet to get it, if nothing else has changed since it was looked who has to.
    pub(super) awaited: Option<BTreeSet<Site>>,
}

impl Spread {
    /// So often the time doubles for which ranks that have called wait for others.
    const DOUBLINGS_MAX: u32 = 4;

    pub(super) fn note_complete(&mut self, site: Site) {
        self.complete.insert(site);
        if let Some(awaited) = &mut self.awaited {
            awaited.remove(&site);
        }
    }

    /// The scheduler's side has the result, and may end the session with it.
    pub(super) fn note_enclosed(&mut self) {
        self.is_enclosed = true;
        self.look_again();
    }

    /// Others may have to get the result from now on, or some not any more.
    pub(super) fn look_again(&mut self) {
        self.awaited = None;
    }

    /// Ranks have called that the newest plan does not lead to. Says if they get a plan now, or wait for others: who
    /// comes one by one does not cause a plan each.
    pub(super) fn is_due(&mut self, now: Duration, patience: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = since + patience * 2_u32.pow(self.plans.min(Self::DOUBLINGS_MAX));
        self.due = (due > now).then_some(due);
        due <= now
    }

    /// Begins with the next plan.
    pub(super) fn begin_plan(&mut self, now: Duration, plan: PlanId) {
        self.plan = plan;
        self.plans += 1;
        (self.since, self.due) = (Some(now), None);
    }

    pub(super) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// The time has passed until which others were waited for.
    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if self.due.take_if(|due| *due <= now).is_some() {
            self.look_again();
        }
    }

    /// Says if all have the result, as far as that is known without looking at all ranks.
    pub(super) fn are_all_complete(&self) -> Option<bool> {
        let awaited = self.awaited.as_ref().filter(|_| !self.is_stale);
        awaited.map(BTreeSet::is_empty)
    }

    pub(super) fn is_current(&self, plan: PlanId) -> bool {
        self.plan == plan && !self.receivers.is_empty()
    }

    /// Two sites of a plan do not reach each other.
    pub(super) fn avoid(&mut self, plan: PlanId) {
        self.is_stale |= self.is_current(plan);
    }

    pub(super) fn receives(&self, site: Site) -> bool {
        self.receivers.contains(&site)
    }

    /// Some sites are far slower than they counted.
    pub(super) fn go_around_slow(&mut self, fallen: &BTreeSet<Site>) {
        self.is_stale |= !self.receivers.is_disjoint(fallen);
    }
}

/// The nodes of a tree that leads from its root to all others: one that receives for each node but the root's, and for
/// each of those one that sends, at the node's parent.
pub(super) fn reversed(tree: &Tree, class: u16) -> impl Iterator<Item = (Site, RowNode)> {
    let count = tree.0.len() as u32;
    let row = move |node, input, parent| RowNode {
        class,
        node,
        from: 0,
        inputs: vec![input],
        parent,
    };
    let links = tree.0.iter().flat_map(|parent| {
        let children = parent.inputs.iter().filter_map(|input| match input {
            Operand::Child(child) => Some(*child),
            Operand::Own(_) => None,
        });
        children.map(|child| (parent.site, child))
    });
    links.flat_map(move |(from, child)| {
        let (to, sender) = (tree.0[child as usize].site, count + child);
        [
            (from, row(sender, Input::Final, Some((to, child)))),
            (to, row(child, Input::Child(from, sender), None)),
        ]
    })
}
