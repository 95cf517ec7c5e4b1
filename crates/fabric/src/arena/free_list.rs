//! Which parts of an arena are free.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// The holes of an arena, each as large as it can be: no two touch each other.
///
/// The smallest hole that suffices is taken, and the lowest among equals, so that what was freed last is likely to be
/// used again while it is in the caches. It also knows which holes may have pages: those that were used before.
#[derive(Debug)]
pub(super) struct FreeList {
    holes: BTreeMap<usize, Hole>,
    by_length: BTreeSet<(usize, usize)>,
    /// How many bytes of all holes may have pages.
    touched: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    length: usize,
    /// Before here there may be pages, from here on there are none; counted from the hole's beginning.
    touched: usize,
}

impl FreeList {
    /// A list of one hole that nobody has touched.
    pub(super) fn new(length: usize) -> Self {
        let mut list = Self {
            holes: BTreeMap::new(),
            by_length: BTreeSet::new(),
            touched: 0,
        };
        list.insert(0, Hole { length, touched: 0 });
        list
    }

    /// Takes `length` bytes, at a multiple of `alignment`; says where.
    pub(super) fn allocate(&mut self, length: usize, alignment: usize) -> Option<usize> {
        let (at, start) = self.by_length.range((length, 0)..).find_map(|&(hole, at)| {
            let start = at.checked_next_multiple_of(alignment)?;
            (start - at <= hole - length).then_some((at, start))
        })?;
        let hole = self.remove(at)?;
        let end = at + hole.length;
        self.insert(
            at,
            Hole {
                length: start - at,
                touched: hole.touched.min(start - at),
            },
        );
        let rest = start + length;
        self.insert(
            rest,
            Hole {
                length: end - rest,
                touched: (at + hole.touched).saturating_sub(rest),
            },
        );
        Some(start)
    }

    /// Gives back what was taken. If more than `kept_max` bytes of all holes may then have pages, it says of which
    /// range the pages should go, and takes them for gone.
    ///
    /// # Panics
    /// If part of it is free.
    pub(super) fn release(&mut self, offset: usize, length: usize, kept_max: usize) -> Option<Range<usize>> {
        let mut start = offset;
        let mut end = offset + length;
        let mut touched_end = end;
        if let Some((&before, hole)) = self.holes.range(..offset).next_back() {
            assert!(before + hole.length <= offset, "memory was given back twice");
            if before + hole.length == offset {
                self.remove(before);
                start = before;
            }
        }
        if let Some((&after, &hole)) = self.holes.range(offset..).next() {
            assert!(after >= end, "memory was given back twice");
            if after == end {
                self.remove(after);
                end += hole.length;
                touched_end += hole.touched;
            }
        }
        let mut hole = Hole {
            length: end - start,
            touched: touched_end - start,
        };
        let exceeds = self.touched + hole.touched > kept_max;
        // Pages at the ends may be shared with what is in use.
        let unused = start.next_multiple_of(PAGE)..(touched_end / PAGE * PAGE).max(start);
        let gone = exceeds && unused.len() >= WORTH_A_CALL;
        if gone {
            hole.touched = 0;
        }
        self.insert(start, hole);
        gone.then_some(unused)
    }

    fn insert(&mut self, at: usize, hole: Hole) {
        if hole.length > 0 {
            self.touched += hole.touched;
            self.by_length.insert((hole.length, at));
            self.holes.insert(at, hole);
        }
    }

    fn remove(&mut self, at: usize) -> Option<Hole> {
        let hole = self.holes.remove(&at)?;
        self.by_length.remove(&(hole.length, at));
        self.touched -= hole.touched;
        Some(hole)
    }
}

const PAGE: usize = 4096;

/// The least that is given back to the system at once, in bytes.
const WORTH_A_CALL: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const LENGTH: usize = 64 << 20;

    proptest! {
        /// Whatever is taken and given back in whatever order: nothing is given twice, alignments are kept, nothing is
        /// lost, and pages are said to go only where nothing is in use.
        #[test]
        fn gives_everything_once(
            steps in vec((any::<bool>(), 1..9_000_000usize, any::<prop::sample::Index>(), any::<bool>()), 1..100),
        ) {
            let mut list = FreeList::new(LENGTH);
            let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
            for (take, length, which, page) in steps {
                let alignment = if page { PAGE } else { 64 };
                if take {
                    let length = length.next_multiple_of(alignment);
                    if let Some(at) = list.allocate(length, alignment) {
                        prop_assert_eq!(at % alignment, 0);
                        prop_assert!(at + length <= LENGTH);
                        if let Some((&before, &length)) = taken.range(..=at).next_back() {
                            prop_assert!(before + length <= at);
                        }
                        if let Some((&after, _)) = taken.range(at..).next() {
                            prop_assert!(at + length <= after);
                        }
                        taken.insert(at, length);
                    }
                } else if !taken.is_empty() {
                    let at = *which.get(&taken.keys().copied().collect::<Vec<_>>());
                    let length = taken.remove(&at).unwrap();
                    if let Some(gone) = list.release(at, length, 16 << 20) {
                        prop_assert!(gone.end <= LENGTH && gone.start % PAGE == 0 && gone.end % PAGE == 0);
                        for (&start, &length) in &taken {
                            prop_assert!(start + length <= gone.start || start >= gone.end);
                        }
                    }
                }
                let free: usize = list.holes.values().map(|hole| hole.length).sum();
                prop_assert_eq!(free + taken.values().sum::<usize>(), LENGTH);
                prop_assert_eq!(list.touched, list.holes.values().map(|hole| hole.touched).sum::<usize>());
                prop_assert!(list.holes.values().all(|hole| hole.touched <= hole.length));
                prop_assert_eq!(list.by_length.len(), list.holes.len());
            }
            for (at, length) in taken {
                list.release(at, length, usize::MAX);
            }
            prop_assert_eq!(list.holes.len(), 1);
            prop_assert_eq!(list.allocate(LENGTH, PAGE), Some(0));
        }
    }

    /// Pages of little stay; pages of more than is kept go, also those that were freed before beside it.
    #[test]
    fn pages_go_when_there_are_too_many() {
        let mut list = FreeList::new(LENGTH);
        let first = list.allocate(4 << 20, PAGE).unwrap();
        let second = list.allocate(4 << 20, PAGE).unwrap();
        assert_eq!(list.release(first, 4 << 20, 4 << 20), None);
        assert_eq!(list.release(second, 4 << 20, 4 << 20), Some(0..8 << 20));
        assert_eq!(list.touched, 0);
    }

    /// To give back what is free is a bug, and found.
    #[test]
    #[should_panic = "given back twice"]
    fn nothing_is_given_back_twice() {
        let mut list = FreeList::new(LENGTH);
        let at = list.allocate(128, 64).unwrap();
        list.release(at, 128, LENGTH);
        list.release(at, 128, LENGTH);
    }
}
