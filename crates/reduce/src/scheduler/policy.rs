//! The choice of the next task: which two parts are combined, and where.

use std::ops::Range;

use ropewalk_names::Rank;

use super::{
    parts::{Home, Part, Parts},
    workers::Workers,
};
use crate::{
    canonical_tree,
    signature::{Order, Policy},
};

/// A task to be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) left: u32,
    /// `None` if the left part is complete and only has to reach the root.
    pub(super) right: Option<u32>,
    pub(super) executor: Rank,
    /// Whether what comes out is the stripe's final content, at the root.
    pub(super) is_commit: bool,
}

/// What a choice depends on.
pub(super) struct View<'a> {
    pub(super) parts: &'a Parts,
    pub(super) workers: &'a Workers,
    /// The members that are alive and have announced their contribution, and so know the operation.
    pub(super) executors: &'a [Rank],
    pub(super) root: Rank,
    pub(super) root_index: u32,
    pub(super) size: u32,
}

impl View<'_> {
    /// The next task of this stripe, if one can be given out now.
    pub(super) fn choose(&self, policy: Policy, order: Order) -> Option<Choice> {
        match (policy, order) {
            (Policy::Paper, _) => self.choose_as_the_paper(),
            (Policy::Chunked, Order::Any) => self.choose_any(),
            (Policy::Chunked, Order::Ordered) => self.choose_ordered(),
        }
    }

    /// Steps 3 and 4 of the paper, and step 4 of its recovery.
    fn choose_as_the_paper(&self) -> Option<Choice> {
        let mut queue = self.parts.ready();
        let (first, first_part) = queue.next()?;
        if first_part.contributions == self.size {
            return Some(self.commit(first));
        }
        let (second, second_part) = queue.next()?;
        let flagged = |part: &Part| match part.home {
            Home::Rank(rank) if part.put_back => Some(rank),
            _ => None,
        };
        let executor = match (first_part.home, second_part.home) {
            (Home::Rank(rank), _) | (_, Home::Rank(rank)) if rank == self.root => rank,
            (Home::Rank(i), Home::Rank(j)) => match (flagged(first_part), flagged(second_part)) {
                (Some(only), None) | (None, Some(only)) => only,
                _ if self.workers.last_task(i) < self.workers.last_task(j) => i,
                // On a tie the second executes, as in the paper's worked example (figure 4).
                _ => j,
            },
            (Home::Rank(alive), Home::Agent) | (Home::Agent, Home::Rank(alive)) => alive,
            // The paper does not say who executes if neither can; the fastest of the others does.
            (Home::Agent, Home::Agent) => self.stand_in()?,
        };
        Some(Choice {
            left: first,
            right: Some(second),
            executor,
            is_commit: false,
        })
    }

    /// Any two parts that are there, the root's own contribution last, so that the root's link carries the
    /// length of the vector once.
    fn choose_any(&self) -> Option<Choice> {
        let others = self
            .parts
            .ready()
            .filter(|&(number, _)| number != self.root_index);
        let mut two = others.clone();
        match (two.next(), two.next()) {
            (Some(_), Some(_)) => {}
            _ if self.parts.is_waiting() => return None,
            (Some((last, _)), None) => {
                let choice = Choice {
                    left: self.root_index,
                    right: Some(last),
                    executor: self.root,
                    is_commit: true,
                };
                return self.workers.has_capacity(self.root).then_some(choice);
            }
            _ => return Some(self.commit(self.root_index)),
        }
        let by_cost = |(number, part): (u32, &Part)| match part.home {
            Home::Rank(rank) if self.may_execute(rank) => {
                Some((self.workers.executing_cost(rank), rank, number))
            }
            _ => None,
        };
        let (executor, left) = match others.clone().filter_map(by_cost).min() {
            Some((_, executor, number)) => (executor, number),
            None if others.clone().any(|(_, part)| self.is_held_by_a_worker(part)) => return None,
            None => (self.stand_in()?, others.clone().next()?.0),
        };
        let serving_cost = |part: &Part| match part.home {
            Home::Agent => (0, Default::default(), 0),
            Home::Rank(rank) => self.workers.executing_cost(rank),
        };
        let partners = others.filter(|&(number, _)| number != left);
        let (right, _) = partners.min_by_key(|(_, part)| serving_cost(part))?;
        Some(Choice {
            left,
            right: Some(right),
            executor,
            is_commit: false,
        })
    }

    /// Two parts that are siblings in the canonical tree, left and right in that order, on either's holder.
    fn choose_ordered(&self) -> Option<Choice> {
        self.parts.ready().find_map(|(number, part)| {
            let Some(sibling) = canonical_tree::sibling(&part.span, self.size) else {
                return Some(self.commit(number));
            };
            let (other, other_part) = self.parts.ready().find(|(_, other)| other.span == sibling)?;
            if sibling.start < part.span.start {
                return None; // The pair is found from its left side.
            }
            let is_last = covers(&part.span, &sibling, self.size);
            let executor = self.executor_of_pair(part, other_part, is_last)?;
            let is_commit = is_last && executor == self.root;
            Some(Choice {
                left: number,
                right: Some(other),
                executor,
                is_commit,
            })
        })
    }

    fn executor_of_pair(&self, left: &Part, right: &Part, is_last: bool) -> Option<Rank> {
        let homes = [left.home, right.home];
        let holders = homes.iter().filter_map(|home| match home {
            Home::Agent => None,
            Home::Rank(rank) => Some(*rank),
        });
        if is_last && holders.clone().any(|rank| rank == self.root) {
            return self.workers.has_capacity(self.root).then_some(self.root);
        }
        if holders.clone().all(|rank| rank == self.root) {
            return self.stand_in();
        }
        let free = holders.filter(|&rank| self.may_execute(rank));
        free.min_by_key(|&rank| self.workers.executing_cost(rank))
    }

    fn is_held_by_a_worker(&self, part: &Part) -> bool {
        matches!(part.home, Home::Rank(rank) if rank != self.root)
    }

    /// The root takes part in the last step only.
    fn may_execute(&self, rank: Rank) -> bool {
        rank != self.root && self.workers.has_capacity(rank)
    }

    /// Who executes if no holder of an operand can: whoever has least to do; the root if there is nobody else.
    fn stand_in(&self) -> Option<Rank> {
        let others = self.executors.iter().copied().filter(|&rank| rank != self.root);
        let free = others.clone().filter(|&rank| self.workers.has_capacity(rank));
        match free.min_by_key(|&rank| self.workers.executing_cost(rank)) {
            None if others.clone().next().is_none() => Some(self.root),
            choice => choice,
        }
    }

    fn commit(&self, complete: u32) -> Choice {
        Choice {
            left: complete,
            right: None,
            executor: self.root,
            is_commit: true,
        }
    }
}

fn covers(left: &Range<u32>, right: &Range<u32>, size: u32) -> bool {
    left.start == 0 && right.end == size
}
