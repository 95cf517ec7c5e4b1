//! Which host has which parts, as one host knows it, and what would be left without one of them.

use std::collections::{BTreeMap, BTreeSet};

use super::Part;
use crate::generation::{Held, KEEP_MIN};

/// The parts of each host that is not gone.
#[derive(Clone, Debug)]
pub(super) struct Holders<'a> {
    parts: BTreeMap<usize, &'a BTreeSet<Part>>,
    ranks: usize,
}

impl<'a> Holders<'a> {
    /// What hosts have of the checkpoints of a job with so many ranks.
    pub(super) fn new(parts: impl IntoIterator<Item = (usize, &'a BTreeSet<Part>)>, ranks: usize) -> Self {
        Self {
            parts: parts.into_iter().collect(),
            ranks,
        }
    }

    /// The generations of which each rank's part is on so many hosts.
    pub(super) fn on_hosts(&self, enough: usize) -> BTreeMap<u64, Held> {
        let mut hosts_of: BTreeMap<Part, usize> = BTreeMap::new();
        for part in self.parts.values().copied().flatten() {
            *hosts_of.entry(*part).or_default() += 1;
        }
        let mut ranks_of: BTreeMap<(u64, u64, u32), u32> = BTreeMap::new();
        for (part, _) in hosts_of.into_iter().filter(|&(_, hosts)| hosts >= enough) {
            let Held {
                generation,
                step,
                ranks,
            } = part.held();
            *ranks_of.entry((generation, step, ranks)).or_default() += 1;
        }
        let complete = ranks_of
            .into_iter()
            .filter(|&((_, _, ranks), count)| count == ranks && ranks as usize == self.ranks);
        complete
            .map(|((generation, step, ranks), _)| {
                let held = Held {
                    generation,
                    step,
                    ranks,
                };
                (generation, held)
            })
            .collect()
    }

    /// The newest generations that are whole, and for each host but `own` the newest that still are if that one is lost with
    /// its disk: that may have happened already, and what it last said it has is gone.
    pub(super) fn outliving(&self, own: usize) -> BTreeSet<u64> {
        let whole = self.on_hosts(1);
        let needs = self.needs(&whole);
        let is_whole_without =
            |generation: u64, lost| !needs.get(&generation).is_some_and(|hosts| hosts.contains(&lost));
        let newest = whole.keys().rev().take(KEEP_MIN);
        let others = self.parts.keys().filter(|&&host| host != own);
        let without_one = others.flat_map(|&lost| {
            let left = whole.keys().rev();
            left.filter(move |&&generation| is_whole_without(generation, lost))
                .take(KEEP_MIN)
        });
        newest.chain(without_one).copied().collect()
    }

    /// The hosts that each generation needs: they alone have some part of it.
    fn needs(&self, whole: &BTreeMap<u64, Held>) -> BTreeMap<u64, BTreeSet<usize>> {
        let mut only_holder: BTreeMap<Part, Option<usize>> = BTreeMap::new();
        for (&host, &parts) in &self.parts {
            for &part in parts {
                let holder = only_holder.entry(part);
                holder.and_modify(|only| *only = None).or_insert(Some(host));
            }
        }
        let mut needs: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for (part, host) in only_holder {
            if let Some(host) = host
                && whole.get(&part.generation) == Some(&part.held())
            {
                needs.entry(part.generation).or_default().insert(host);
            }
        }
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::Level;

    fn parts(parts: &[(u64, u32)]) -> BTreeSet<Part> {
        let part = |&(generation, rank)| Part {
            generation,
            rank,
            step: generation,
            ranks: 2,
            level: Level::Full,
        };
        parts.iter().map(part).collect()
    }

    /// Beside the newest that are whole, those that need the other host, the newest that do not need it; what is older, or
    /// not whole anywhere, is not among them.
    #[test]
    fn what_does_not_need_the_other_host_outlives_it() {
        let here = parts(&[
            (1, 0),
            (1, 1),
            (2, 0),
            (2, 1),
            (3, 0),
            (3, 1),
            (4, 1),
            (5, 1),
            (6, 1),
            (7, 1),
        ]);
        let there = parts(&[(3, 1), (4, 0), (5, 0), (6, 0)]);
        let holders = Holders::new([(0, &there), (1, &here)], 2);
        assert_eq!(holders.outliving(1), [2, 3, 5, 6].into());
        assert_eq!(Holders::new([(1, &here)], 2).outliving(1), [2, 3].into());
    }

    /// Each of the others may be the one that is lost.
    #[test]
    fn any_of_the_others_may_be_lost() {
        let here = parts(&[(1, 0), (1, 1), (2, 1), (3, 0), (4, 0), (5, 0)]);
        let (second, third) = (parts(&[(2, 0), (4, 1), (5, 1)]), parts(&[(2, 0), (3, 1)]));
        let holders = Holders::new([(0, &here), (1, &second), (2, &third)], 2);
        assert_eq!(holders.outliving(0), [2, 3, 4, 5].into());
    }
}
