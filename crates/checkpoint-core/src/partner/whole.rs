//! Which generations are whole, by where their parts are.

use std::collections::{BTreeMap, BTreeSet};

use super::Part;
use crate::generation::Held;

/// The generations of which each rank's part is on one of the hosts.
pub(super) fn whole_on<'a>(
    hosts: impl IntoIterator<Item = &'a BTreeSet<Part>>,
    ranks: u32,
) -> BTreeMap<u64, Held> {
    let parts: BTreeSet<Part> = hosts.into_iter().flatten().copied().collect();
    whole(parts.into_iter(), ranks as usize, ranks)
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

    fn parts(parts: &[(u64, u32)]) -> BTreeSet<Part> {
        let part = |&(generation, rank)| Part::of_two(generation, rank);
        parts.iter().map(part).collect()
    }

    /// Parts on different hosts make a generation whole.
    #[test]
    fn parts_are_counted_over_hosts() {
        let (first, second) = (
            parts(&[(1, 0), (2, 0), (3, 0), (3, 1)]),
            parts(&[(1, 1), (2, 0), (3, 0)]),
        );
        let generations: Vec<u64> = whole_on([&first, &second], 2).into_keys().collect();
        assert_eq!(generations, [1, 3]);
        let of_three = whole_on([&first, &second], 3);
        assert!(of_three.is_empty(), "they are of a job of another size");
    }
}
