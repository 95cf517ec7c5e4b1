//! Which generations are whole, by where their parts are.

use std::collections::{BTreeMap, BTreeSet};

use super::Part;
use crate::generation::Held;

/// The generations of which each rank's part is on so many of the hosts.
pub(super) fn on_hosts<'a>(
    hosts: impl IntoIterator<Item = &'a BTreeSet<Part>>,
    enough: usize,
    ranks: u32,
) -> BTreeMap<u64, Held> {
    let mut hosts_of: BTreeMap<Part, usize> = BTreeMap::new();
    for part in hosts.into_iter().flatten() {
        *hosts_of.entry(*part).or_default() += 1;
    }
    let parts = hosts_of.into_iter().filter(|&(_, hosts)| hosts >= enough);
    whole(parts.map(|(part, _)| part), ranks as usize, ranks)
}

/// The generations of which so many different ranks' parts are among these, in a job of `ranks`.
pub(super) fn whole(parts: impl Iterator<Item = Part>, enough: usize, ranks: u32) -> BTreeMap<u64, Held> {
    let mut ranks_of: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for part in parts.filter(|part| part.ranks == ranks) {
        *ranks_of.entry((part.generation, part.step)).or_default() += 1;
    }
    let complete = ranks_of.into_iter().filter(|&(_, count)| count == enough);
    let held = |generation, step| Held {
        generation,
        step,
        ranks,
    };
    complete
        .map(|((generation, step), _)| (generation, held(generation, step)))
        .collect()
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

    /// Parts on different hosts make a generation whole; each has to be on as many hosts as are asked for.
    #[test]
    fn parts_are_counted_over_hosts() {
        let (first, second) = (
            parts(&[(1, 0), (2, 0), (3, 0), (3, 1)]),
            parts(&[(1, 0), (1, 1), (2, 1), (3, 0), (3, 1)]),
        );
        let generations = |enough| {
            on_hosts([&first, &second], enough, 2)
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!((generations(1), generations(2)), (vec![1, 2, 3], vec![3]));
        assert!(
            on_hosts([&first, &second], 1, 3).is_empty(),
            "of a job of other size"
        );
    }
}
