//! How many children each site gets in the tree of each class.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::{planner::Source, shape::Shape};

/// The number of children of each site from class to class: each gets its part over all classes.
pub(crate) struct ChildShares {
    shape: Shape,
    /// Children per class, on average.
    parts: Vec<f64>,
    /// Parts that were not given yet.
    credits: Vec<f64>,
}

impl ChildShares {
    pub(crate) fn new(others: &[&Source], shape: Shape) -> Self {
        let parts = loads(others);
        Self {
            shape,
            credits: vec![0.0; parts.len()],
            parts,
        }
    }

    /// The number of children of each, in the next class.
    pub(crate) fn next_class(&mut self) -> Vec<u32> {
        let mut children = vec![0; self.parts.len()];
        let mut left = (self.parts.len() as u64).saturating_sub(self.shape.children_of_root().into());
        for (credit, part) in self.credits.iter_mut().zip(&self.parts) {
            *credit += part;
        }
        let able = (0..self.parts.len()).filter(|&at| self.parts[at] > 0.0);
        let mut able: BinaryHeap<Credit> = able.map(|at| Credit(self.credits[at], at)).collect();
        let mut inner = 0;
        while left > 0
            && let Some(Credit(credit, at)) = able.pop()
        {
            let count = self.shape.children(inner).min(left);
            inner += 1;
            children[at] += count as u32;
            left -= count;
            self.credits[at] = credit - count as f64;
            able.push(Credit(self.credits[at], at));
        }
        children
    }
}

/// The children that a site should still get, and its place among the sites. The most comes first, and of equals the
/// first.
struct Credit(f64, usize);

impl Ord for Credit {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for Credit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Credit {}

impl PartialEq for Credit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

/// The children of each site in a class, on average. One site is the root's child, each other one somebody else's.
fn loads(others: &[&Source]) -> Vec<f64> {
    let least = least_capacity(others);
    let capacity = |source: &&Source| {
        if source.capacity < least {
            0.0
        } else {
            source.capacity
        }
    };
    let capacities: Vec<f64> = others.iter().map(capacity).collect();
    let children = others.len().saturating_sub(1) as f64;
    let (all, most) = (
        capacities.iter().sum::<f64>(),
        capacities.iter().copied().fold(0.0, f64::max),
    );
    if children * most > all {
        let part = |capacity: &f64| children * capacity / all.max(f64::MIN_POSITIVE);
        return capacities.iter().map(part).collect();
    }
    // The fastest receive as much as they send, the others what is left.
    let mut order: Vec<usize> = (0..others.len()).collect();
    order.sort_by(|&one, &other| capacities[other].total_cmp(&capacities[one]));
    let (mut loads, mut left) = (vec![0.0; others.len()], children);
    for at in order {
        loads[at] = (capacities[at] / most.max(f64::MIN_POSITIVE)).min(left);
        left -= loads[at];
    }
    loads
}

/// The capacity below which a site is always a leaf. What the slowest sites together could receive is hardly
/// missed, and a chunk that passes one of them holds up the others.
fn least_capacity(others: &[&Source]) -> f64 {
    const HARDLY_MISSED: f64 = 0.15;
    let mut capacities: Vec<f64> = others.iter().map(|source| source.capacity).collect();
    capacities.sort_by(f64::total_cmp);
    let limit = HARDLY_MISSED * capacities.iter().sum::<f64>();
    let mut missed = 0.0;
    let first = capacities.iter().find(|&&capacity| {
        missed += capacity;
        missed > limit
    });
    first.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::Site;

    proptest! {
        /// Over all classes each site gets the children that its rate is good for, and one more at most.
        #[test]
        fn sites_get_their_parts(
            capacities in prop::collection::vec(0.05_f64..1.0, 2..40),
            shape in prop_oneof![Just(Shape::Chains(1)), Just(Shape::Chains(3)), Just(Shape::Chains(20))],
        ) {
            const CLASSES: usize = 16;
            let sources = capacities.iter().enumerate().map(|(at, &capacity)| Source {
                site: Site(at as u32),
                members: Vec::new(),
                capacity,
            });
            let sources: Vec<Source> = sources.collect();
            let others: Vec<&Source> = sources.iter().collect();
            let mut shares = ChildShares::new(&others, shape);
            let mut given = vec![0; capacities.len()];
            for _ in 0..CLASSES {
                let children = shares.next_class();
                prop_assert_eq!(children.iter().sum::<u32>() as usize, capacities.len() - 1);
                given.iter_mut().zip(children).for_each(|(given, count)| *given += count);
            }
            for (given, part) in given.iter().zip(loads(&others)) {
                let most = CLASSES as f64 * part + 2.0;
                prop_assert!(f64::from(*given) <= most, "{given} of {most}");
            }
        }
    }
}
