//! The choice of a generation to start from when the parts of ranks lie on several hosts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Inventory, Part, whole::whole_on};
use crate::generation::{Choice, Holdings, choose};

/// The plan of the work that each host has to do before the ranks start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The choice of the generation that the ranks start from.
    pub choice: Choice,
    /// Parts that are not where their ranks will run.
    pub fetches: Vec<Fetch>,
    /// For each host, the newest generation that is whole without it when all is fetched. This generation is
    /// left if the host is lost before anything is copied anew.
    pub fallbacks: BTreeSet<u64>,
}

/// A part that a host has to fetch from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Which.
    pub part: Part,
    /// The host that has it.
    pub from: usize,
    /// The host on which its rank will run.
    pub to: usize,
}

/// Plans the start of a job from what its hosts have, in order of host. `host_of_rank` says where each rank will run.
///
/// Taken is the newest generation of which each rank's part is whole on some host, by the rule of [`choose`]. The first
/// host that has a missing part gives it, and hosts that have equally much give in turn.
pub fn plan_recovery(inventories: &[Inventory], host_of_rank: &[usize], restarts_max: u32) -> Recovery {
    let mut choice = choose(&holdings(inventories, host_of_rank.len()), restarts_max);
    if choice.next > 1 {
        choice.next = choice.next.saturating_add(NUMBERS_LEFT_OUT);
    }
    let mut fetches = Vec::new();
    if let Some(held) = choice.restore {
        let mut holders: BTreeMap<u32, Vec<(usize, Part)>> = BTreeMap::new();
        for (host, inventory) in inventories.iter().enumerate() {
            for &part in inventory.parts.iter().filter(|part| part.held() == held) {
                holders.entry(part.rank).or_default().push((host, part));
            }
        }
        for (rank, &to) in host_of_rank.iter().enumerate() {
            let from = holders.get(&(rank as u32)).map_or(&[][..], |hosts| hosts);
            if from.is_empty() || from.iter().any(|&(host, _)| host == to) {
                continue;
            }
            let (from, part) = from[rank % from.len()];
            fetches.push(Fetch { part, from, to });
        }
    }
    let fallbacks = match choice.restore {
        Some(held) => fallbacks(inventories, &fetches, host_of_rank.len() as u32, held.generation),
        None => BTreeSet::new(),
    };
    Recovery {
        choice,
        fetches,
        fallbacks,
    }
}

fn fallbacks(inventories: &[Inventory], fetches: &[Fetch], ranks: u32, newest: u64) -> BTreeSet<u64> {
    let lists = inventories
        .iter()
        .map(|inventory| inventory.parts.iter().copied().collect());
    let mut parts: Vec<BTreeSet<Part>> = lists.collect();
    for fetch in fetches {
        parts[fetch.to].insert(fetch.part);
    }
    let mut only_holder: BTreeMap<Part, Option<usize>> = BTreeMap::new();
    for (host, parts) in parts.iter().enumerate() {
        for &part in parts {
            let holder = only_holder.entry(part);
            holder.and_modify(|only| *only = None).or_insert(Some(host));
        }
    }
    let mut needed: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for (part, only) in only_holder {
        needed.entry(part.generation).or_default().extend(only);
    }
    let mut fallbacks = BTreeSet::new();
    let mut without: BTreeSet<usize> = (0..parts.len()).collect();
    for &generation in whole_on(&parts, ranks)
        .range(..=newest)
        .rev()
        .map(|(generation, _)| generation)
    {
        let needed = &needed[&generation];
        if !without.is_subset(needed) {
            fallbacks.insert(generation);
            without = &without & needed;
        }
    }
    fallbacks
}

/// The holdings of each rank, on any host.
fn holdings(inventories: &[Inventory], ranks: usize) -> Vec<Holdings> {
    let mut of_ranks = vec![Holdings::default(); ranks];
    for inventory in inventories {
        for part in &inventory.parts {
            if let Some(rank) = of_ranks.get_mut(part.rank as usize) {
                rank.held.push(part.held());
            }
        }
        for &(rank, restarts) in &inventory.restarts {
            if let Some(rank) = of_ranks.get_mut(rank as usize) {
                let noted = rank.restarts.get_or_insert(restarts);
                if (noted.generation, noted.count) < (restarts.generation, restarts.count) {
                    *noted = restarts;
                }
            }
        }
    }
    let highest = inventories.iter().map(|inventory| inventory.highest).max();
    for rank in &mut of_ranks {
        rank.held
            .sort_unstable_by_key(|held| (held.generation, held.step, held.ranks));
        rank.held.dedup();
        rank.highest = highest.unwrap_or(0);
    }
    of_ranks
}

/// The number of generation numbers that are passed over at each start. A lost host may have used some of
/// which nobody knows. Should it come back, its parts must not be taken for parts of a later save.
pub const NUMBERS_LEFT_OUT: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::Restarts;

    fn part(generation: u64, rank: u32) -> Part {
        Part::of_two(generation, rank)
    }

    fn host(parts: &[Part]) -> Inventory {
        Inventory {
            parts: parts.to_vec(),
            highest: parts.iter().map(|part| part.generation).max().unwrap_or(0),
            restarts: Vec::new(),
        }
    }

    /// A host without anything fetches from the one that has copies; the newest that all ranks have anywhere is taken.
    #[test]
    fn a_new_host_fetches() {
        let hosts = [host(&[]), host(&[part(3, 0), part(3, 1), part(4, 1)])];
        let recovery = plan_recovery(&hosts, &[0, 1], 5);
        assert_eq!(recovery.choice.restore, Some(part(3, 0).held()));
        assert_eq!(recovery.choice.next, 5 + NUMBERS_LEFT_OUT);
        assert_eq!(recovery.fallbacks, [3].into(), "without host 0");
        let fetch = Fetch {
            part: part(3, 0),
            from: 1,
            to: 0,
        };
        assert_eq!(recovery.fetches, [fetch]);
    }

    /// Without the lost host its ranks run elsewhere, where the copies may be already.
    #[test]
    fn the_survivor_has_all() {
        let hosts = [host(&[part(3, 0), part(3, 1)])];
        let recovery = plan_recovery(&hosts, &[0, 0], 5);
        assert_eq!(recovery.choice.restore, Some(part(3, 0).held()));
        assert!(recovery.fetches.is_empty());
    }

    /// A generation that is older than the one that the job starts from, but does not need some host, is
    /// there if that host is lost at once.
    #[test]
    fn what_is_left_without_a_host_is_known() {
        let (zero, one) = (|generation| part(generation, 0), |generation| part(generation, 1));
        let hosts = [
            host(&[zero(1), one(1), zero(2), zero(4), zero(5)]),
            host(&[zero(1), one(1), one(2), one(4), zero(4), one(5)]),
            host(&[zero(2), one(3)]),
        ];
        let recovery = plan_recovery(&hosts, &[0, 1], 5);
        assert_eq!(recovery.choice.restore, Some(part(5, 0).held()));
        // Without host 2 the newest of all, without 0 the fourth, without 1 the first.
        assert_eq!(recovery.fallbacks, [1, 4, 5].into());
    }

    /// Where nothing was saved the job starts from its beginning, with the first number.
    #[test]
    fn nothing_is_found() {
        let recovery = plan_recovery(&[host(&[]), host(&[])], &[0, 1], 5);
        assert_eq!((recovery.choice.restore, recovery.choice.next), (None, 1));
    }

    /// A count of starts that only one host knows is believed.
    #[test]
    fn restarts_are_counted_over_hosts() {
        let mut hosts = [host(&[part(3, 0), part(4, 0)]), host(&[part(3, 1), part(4, 1)])];
        let (generation, count) = (4, 5);
        hosts[1].restarts = vec![(1, Restarts { generation, count })];
        let recovery = plan_recovery(&hosts, &[0, 1], 5);
        assert_eq!(recovery.choice.restore, Some(part(3, 0).held()));
        assert_eq!(recovery.choice.given_up, [4]);
    }
}
