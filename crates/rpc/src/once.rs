//! The numbers of calls that run at most once.

use std::collections::{BTreeMap, BTreeSet};

/// Gives them out, and knows for each target which calls have not ended: the target forgets the others. `A`
/// names a target over all its connections.
#[derive(Debug)]
pub(crate) struct Sequences<A> {
    next: u64,
    in_progress: BTreeMap<A, BTreeSet<u64>>,
}

impl<A: Clone + Ord> Sequences<A> {
    pub(crate) const fn new() -> Self {
        Self {
            next: 0,
            in_progress: BTreeMap::new(),
        }
    }

    /// The number of a new call.
    pub(crate) fn begin(&mut self, target: &A) -> u64 {
        let sequence = self.next;
        self.next += 1;
        match self.in_progress.get_mut(target) {
            Some(sequences) => drop(sequences.insert(sequence)),
            None => drop(
                self.in_progress
                    .insert(target.clone(), BTreeSet::from([sequence])),
            ),
        }
        sequence
    }

    /// The call has ended: it will not be made again.
    pub(crate) fn end(&mut self, target: &A, sequence: u64) {
        if let Some(sequences) = self.in_progress.get_mut(target) {
            sequences.remove(&sequence);
            if sequences.is_empty() {
                self.in_progress.remove(target);
            }
        }
    }

    /// No call to the target below this number is in progress.
    pub(crate) fn lowest(&self, target: &A) -> u64 {
        let first = self.in_progress.get(target).and_then(BTreeSet::first);
        first.copied().unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lowest number of a target is that of its oldest call, whatever others do.
    #[test]
    fn the_lowest_is_in_progress() {
        let mut sequences = Sequences::new();
        let numbers = ["a", "a", "b", "a"].map(|target| sequences.begin(&target));
        assert_eq!(numbers, [0, 1, 2, 3]);
        sequences.end(&"a", 1);
        assert_eq!((sequences.lowest(&"a"), sequences.lowest(&"b")), (0, 2));
        sequences.end(&"a", 0);
        assert_eq!(sequences.lowest(&"a"), 3);
        sequences.end(&"a", 3);
        assert_eq!((sequences.lowest(&"a"), sequences.lowest(&"c")), (4, 4));
        assert_eq!(sequences.in_progress.len(), 1);
    }
}
