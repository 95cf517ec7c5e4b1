//! Which of the segments that are exposed share a region.

use std::ops::Range;

/// Segments up to this length share a region with their neighbours, by a copy: one operation then moves all of
/// them, and the copy costs less than an operation each.
const PACKED_MAX: usize = 4 << 10;

/// The groups of segments that lie in one region each, in order. A group of one is exposed as it is.
pub(crate) fn groups(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, &length) in lengths.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if length <= PACKED_MAX && lengths[group.start] <= PACKED_MAX => group.end = at + 1,
            _ => groups.push(at..at + 1),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// Every segment is in one group, in order, and a large one is alone.
        #[test]
        fn groups_are_the_segments(lengths in vec(prop_oneof![0..100_usize, PACKED_MAX - 1..PACKED_MAX + 2], 0..50)) {
            let groups = groups(&lengths);
            let all: Vec<_> = groups.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            for group in groups {
                prop_assert!(group.len() == 1 || lengths[group].iter().all(|&length| length <= PACKED_MAX));
            }
        }
    }

    /// Small neighbours share a region, between large ones that do not.
    #[test]
    fn small_neighbours_are_packed() {
        assert_eq!(
            groups(&[8, 8, 1 << 20, 8, 0, 8, 1 << 20, 1 << 20]),
            [0..2, 2..3, 3..6, 6..7, 7..8]
        );
        assert!(groups(&[]).is_empty());
    }
}
