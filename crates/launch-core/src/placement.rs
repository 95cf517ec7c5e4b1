//! Which rank runs on which host, and there on which cores.

mod binding;
mod bindings;
mod processors;
mod rank_map;

use std::collections::BTreeMap;

use ropewalk_names::Rank;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hosts::HostSlots;

pub use binding::{Binding, BindingSyntaxError, CacheKind, Mapping, Part, Parts, UserBinding};
pub use bindings::{BindingError, Bindings, CountedParts, processor_list};
pub use processors::Processor;
pub use rank_map::{RankMap, RankMapError};

/// A host and its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlan {
    /// The host's name.
    pub name: String,
    /// It is the launcher's own.
    pub is_local: bool,
    /// Its ranks, in ascending order.
    pub runs: Vec<RankRun>,
}

/// So many ranks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRun {
    /// The first of them.
    pub first: Rank,
    /// How many there are.
    pub count: u32,
}

impl HostPlan {
    /// Its ranks, in ascending order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.runs
            .iter()
            .flat_map(|run| (run.first.0..run.first.0.saturating_add(run.count)).map(Rank))
    }

    /// Returns true if `rank` runs on this host.
    pub fn has(&self, rank: Rank) -> bool {
        self.runs.iter().any(|run| {
            rank.0
                .checked_sub(run.first.0)
                .is_some_and(|index| index < run.count)
        })
    }
}

/// How ranks are dealt to hosts and processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// How many ranks each host takes in one turn, instead of its slots.
    pub ranks_per_host: Option<u32>,
    /// The parts of the launcher's host by which `ranks_per_host` was counted: a host that has another number of them
    /// starts no rank.
    pub counted: Option<CountedParts>,
    /// In which order.
    pub order: DealOrder,
    /// In which order the ranks are numbered, once it is known how many each host takes; as they are dealt if `None`.
    pub numbering: Option<DealOrder>,
    /// Where each rank runs, instead of all that; only how many a host takes at most counts still.
    pub rank_map: Option<RankMap>,
    /// To which processors of its host each rank is bound.
    pub binding: Binding,
    /// The launcher hears to which processors each rank is bound.
    pub tells_bindings: bool,
    /// How many graphics processors each rank gets, by `CUDA_VISIBLE_DEVICES`: the first of a host those from
    /// number 0 on, the next those that follow. With 0 it gets none, with `None` nothing is said.
    pub gpus_per_rank: Option<u16>,
}

/// In which order ranks are dealt to hosts. When all slots are taken the first host begins again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DealOrder {
    /// One rank to each host in turn.
    ByNode,
    /// To each host as many as it has slots.
    #[default]
    BySlot,
}

/// Why ranks cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// A host has more ranks than it takes.
    #[error("rank {rank} has no room on host {name} by its max_slots")]
    HostFull {
        /// The first that does not fit.
        rank: Rank,
        /// The host.
        name: String,
    },
    /// A number that no host has.
    #[error("rank {rank} is to run on host number {host}, and there are {hosts} hosts, from number 0 on")]
    NoSuchHost {
        /// The rank.
        rank: Rank,
        /// The number.
        host: usize,
        /// How many hosts there are.
        hosts: usize,
    },
    /// Some ranks have no place.
    #[error("the rank map has hosts for {mapped} ranks, and there are {ranks}: it must name one for each")]
    RankMapTooShort {
        /// How many there are.
        ranks: u32,
        /// How many have a host.
        mapped: u64,
    },
    /// The hosts take no more.
    #[error("the hosts take {slots} ranks at most by their max_slots, not {ranks}")]
    TooFewSlots {
        /// How many ranks there are.
        ranks: u32,
        /// How many the hosts take.
        slots: u32,
    },
}

/// Deals `ranks` ranks to hosts. Hosts without a rank are left out; without hosts all is on the launcher's own, whose
/// name is `own`.
pub fn place(
    ranks: u32,
    hosts: &[HostSlots],
    placement: &Placement,
    own: &str,
) -> Result<Vec<HostPlan>, PlacementError> {
    let this_host = [HostSlots::new(own, ranks).or_else(|_| HostSlots::new("localhost", ranks))];
    let this_host = this_host.map(|host| host.expect("localhost is a name"));
    let hosts = if hosts.is_empty() { &this_host } else { hosts };
    // A host may be named several times: then it has several turns, and its limits add up.
    let mut plans: Vec<HostPlan> = Vec::new();
    let mut known = BTreeMap::new();
    let mut room: Vec<Option<u32>> = Vec::new();
    let turns: Vec<(usize, u32)> = hosts
        .iter()
        .map(|host| {
            let index = *known.entry(host.name()).or_insert_with(|| {
                plans.push(HostPlan {
                    name: host.name().to_owned(),
                    is_local: is_local(host.name(), own),
                    runs: Vec::new(),
                });
                room.push(Some(0));
                plans.len() - 1
            });
            room[index] = match (room[index], host.slots_max) {
                (Some(sum), Some(slots)) => Some(sum.saturating_add(slots)),
                _ => None,
            };
            (index, placement.ranks_per_host.unwrap_or(host.slots).max(1))
        })
        .collect();
    if let Some(map) = &placement.rank_map {
        for (rank, index) in (0..ranks).map(Rank).zip(map.of(ranks, plans.len())?) {
            let plan = &mut plans[index];
            match &mut room[index] {
                Some(0) => {
                    let name = plan.name.clone();
                    return Err(PlacementError::HostFull { rank, name });
                }
                Some(room) => *room -= 1,
                None => {}
            }
            add(&mut plan.runs, rank, 1);
        }
        plans.retain(|plan| !plan.runs.is_empty());
        return Ok(plans);
    }
    let slots_max = room
        .iter()
        .try_fold(0u32, |sum, room| Some(sum.saturating_add((*room)?)));
    if let Some(slots) = slots_max.filter(|&slots| slots < ranks) {
        return Err(PlacementError::TooFewSlots { ranks, slots });
    }
    let mut next = 0;
    while next < ranks {
        let longest = turns.iter().map(|&(_, slots)| slots).max().unwrap_or(1);
        let (passes, most) = match placement.order {
            DealOrder::ByNode => (0..longest, 1),
            DealOrder::BySlot => (0..1, u32::MAX),
        };
        for pass in passes {
            let before = next;
            for &(index, slots) in &turns {
                let room = &mut room[index];
                let count = most
                    .min(slots.saturating_sub(pass))
                    .min(ranks - next)
                    .min(room.unwrap_or(u32::MAX));
                if let Some(room) = room {
                    *room -= count;
                }
                add(&mut plans[index].runs, Rank(next), count);
                next += count;
            }
            // Later passes are for the same hosts or fewer, and slots may be any number.
            if next == before {
                break;
            }
        }
    }
    plans.retain(|plan| !plan.runs.is_empty());
    if let Some(order) = placement.numbering {
        number(&mut plans, order);
    }
    Ok(plans)
}

/// Numbers the ranks again, of which each host keeps as many as it has: host by host, or one of each host in turn.
fn number(plans: &mut [HostPlan], order: DealOrder) {
    let mut left: Vec<u32> = plans
        .iter_mut()
        .map(|plan| plan.runs.drain(..).map(|run| run.count).sum())
        .collect();
    let most = match order {
        DealOrder::ByNode => 1,
        DealOrder::BySlot => u32::MAX,
    };
    let mut next = 0;
    while left.iter().any(|&left| left > 0) {
        for (plan, left) in plans.iter_mut().zip(&mut left) {
            let count = most.min(*left);
            add(&mut plan.runs, Rank(next), count);
            next += count;
            *left -= count;
        }
    }
}

fn add(runs: &mut Vec<RankRun>, first: Rank, count: u32) {
    match runs.last_mut() {
        _ if count == 0 => {}
        Some(last) if last.first.0 + last.count == first.0 => last.count += count,
        _ => runs.push(RankRun { first, count }),
    }
}

/// Returns true if a name means the host with the name `own` itself.
pub fn is_local(name: &str, own: &str) -> bool {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let is_address = name.parse::<core::net::IpAddr>();
    match is_address {
        Ok(address) => address.is_loopback(),
        Err(_) => name == "localhost" || name == own || (!name.contains('@') && short(name) == short(own)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hosts::{parse_host_file, parse_hosts};

    fn placed(ranks: u32, hosts: &str, placement: &Placement) -> Vec<(String, Vec<u32>)> {
        let hosts = parse_hosts(hosts).unwrap();
        let plans = place(ranks, &hosts, placement, "own").unwrap();
        let ranks = |plan: &HostPlan| plan.ranks().map(|rank| rank.0).collect();
        plans
            .iter()
            .map(|plan| (plan.name.clone(), ranks(plan)))
            .collect()
    }

    /// However many slots hosts are said to have, dealing in turn takes no longer than there are ranks.
    #[test]
    fn slots_may_be_any_number() {
        let placement = Placement {
            order: DealOrder::ByNode,
            ..Placement::default()
        };
        let hosts = parse_host_file("a slots=4294967295 max_slots=1\nb slots=4294967295\n").unwrap();
        let plans = place(4, &hosts, &placement, "own").unwrap();
        let counts: Vec<_> = plans.iter().map(|plan| plan.ranks().count()).collect();
        assert_eq!(counts, [1, 3]);
        let hosts = parse_host_file("a slots=4294967295 max_slots=1\nb slots=1\n").unwrap();
        assert_eq!(
            place(4, &hosts, &placement, "own").map(|plans| plans.len()),
            Ok(2)
        );
    }

    /// Slots are filled host by host and begin again; `-ppn` goes before slots; a host may be named twice.
    #[test]
    fn ranks_fill_slots() {
        let of = |name: &str, ranks: &[u32]| (name.to_owned(), ranks.to_vec());
        let by_slot = Placement::default();
        assert_eq!(placed(3, "", &by_slot), [of("own", &[0, 1, 2])]);
        assert_eq!(
            placed(7, "a:2,b:1", &by_slot),
            [of("a", &[0, 1, 3, 4, 6]), of("b", &[2, 5])]
        );
        assert_eq!(placed(1, "a,b", &by_slot), [of("a", &[0])]);
        assert_eq!(placed(3, "a,b,a", &by_slot), [of("a", &[0, 2]), of("b", &[1])]);
        let two = Placement {
            ranks_per_host: Some(2),
            ..Placement::default()
        };
        assert_eq!(placed(4, "a:8,b", &two), [of("a", &[0, 1]), of("b", &[2, 3])]);
        let by_node = Placement {
            order: DealOrder::ByNode,
            ..Placement::default()
        };
        assert_eq!(
            placed(5, "a:3,b:2", &by_node),
            [of("a", &[0, 2, 4]), of("b", &[1, 3])]
        );
    }

    /// Ranks are numbered host by host or in turn, however many hosts were dealt; Open MPI 4.1.4 shows the same for
    /// `--host a:2,b:2` with each pair of `--map-by` and `--rank-by`.
    #[test]
    fn ranks_are_numbered() {
        use DealOrder::{ByNode, BySlot};
        let of = |name: &str, ranks: &[u32]| (name.to_owned(), ranks.to_vec());
        for (hosts, ranks, order, numbering, a, b) in [
            ("a:2,b:2", 4, BySlot, BySlot, &[0, 1][..], &[2, 3][..]),
            ("a:2,b:2", 4, BySlot, ByNode, &[0, 2], &[1, 3]),
            ("a:2,b:2", 4, ByNode, BySlot, &[0, 1], &[2, 3]),
            ("a:2,b:2", 4, ByNode, ByNode, &[0, 2], &[1, 3]),
            ("a:3,b:1", 4, BySlot, ByNode, &[0, 2, 3], &[1]),
            ("a:1,b:1", 4, BySlot, BySlot, &[0, 1], &[2, 3]),
        ] {
            let placement = Placement {
                order,
                numbering: Some(numbering),
                ..Placement::default()
            };
            let found = placed(ranks, hosts, &placement);
            assert_eq!(found, [of("a", a), of("b", b)], "{hosts} {order:?} {numbering:?}");
        }
    }

    /// `max_slots` is never exceeded: what does not fit is an error.
    #[test]
    fn the_most_slots_are_kept() {
        let hosts = parse_host_file("a slots=1 max_slots=2\nb slots=1 max_slots=1\n").unwrap();
        let plans = place(3, &hosts, &Placement::default(), "own").unwrap();
        assert_eq!(plans[0].ranks().count(), 2);
        let error = place(4, &hosts, &Placement::default(), "own").unwrap_err();
        assert_eq!(error, PlacementError::TooFewSlots { ranks: 4, slots: 3 });
    }

    /// A map says where each rank runs, whatever else would; only how many a host takes at most is kept.
    #[test]
    fn a_map_goes_before_slots() {
        let mapped = |map: &str| Placement {
            ranks_per_host: Some(7),
            order: DealOrder::ByNode,
            rank_map: Some(map.parse().unwrap()),
            ..Placement::default()
        };
        let of = |name: &str, ranks: &[u32]| (name.to_owned(), ranks.to_vec());
        assert_eq!(
            placed(5, "a:2,b,c", &mapped("2,0,2,(0,1,2)")),
            [of("a", &[1, 3, 4]), of("c", &[0, 2])]
        );
        assert_eq!(placed(2, "", &mapped("0,0")), [of("own", &[0, 1])]);
        // One host, however often it is named.
        assert_eq!(placed(2, "a,b,a", &mapped("0,1")), [of("a", &[0]), of("b", &[1])]);
        let hosts = parse_host_file("a slots=1 max_slots=1\nb slots=1\n").unwrap();
        assert!(place(3, &hosts, &mapped("0,1,1"), "own").is_ok());
        let error = place(3, &hosts, &mapped("0,1,0"), "own").unwrap_err();
        let (rank, name) = (Rank(2), "a".to_owned());
        assert_eq!(error, PlacementError::HostFull { rank, name });
    }

    /// The launcher's own host is known under its names.
    #[test]
    fn the_own_host_is_known() {
        for name in ["localhost", "127.0.0.1", "::1", "vm", "vm.example.org"] {
            assert!(is_local(name, "vm"), "{name}");
        }
        for name in ["vm2", "10.0.0.1", "user@vm"] {
            assert!(!is_local(name, "vm"), "{name}");
        }
    }

    proptest! {
        /// Every rank has one place, whatever hosts and order.
        #[test]
        fn all_ranks_are_placed_once(
            ranks in 1u32..200,
            slots in proptest::collection::vec((0u8..5, 1u32..9), 0..12),
            by_node: bool,
            numbered_by_node: Option<bool>,
        ) {
            let hosts: Vec<_> = slots
                .iter()
                .map(|(name, slots)| HostSlots::new(format!("h{name}"), *slots).unwrap())
                .collect();
            let order = |by_node| if by_node { DealOrder::ByNode } else { DealOrder::BySlot };
            let placement = Placement {
                order: order(by_node),
                numbering: numbered_by_node.map(order),
                ..Placement::default()
            };
            let plans = place(ranks, &hosts, &placement, "own").unwrap();
            let mut seen: Vec<_> = plans.iter().flat_map(HostPlan::ranks).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..ranks).map(Rank).collect::<Vec<_>>());
            prop_assert!(plans.iter().all(|plan| plan.ranks().is_sorted()));
        }
    }
}
