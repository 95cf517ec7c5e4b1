//! The fixed shape of an ordered reduction: a binary tree over the members' indices.
//!
//! A node is an interval of members. It splits after the largest power of two below its length, so the shape
//! depends on the number of members alone.

use std::ops::Range;

/// The two intervals that an interval of at least two members is combined from.
pub fn children(node: &Range<u32>) -> (Range<u32>, Range<u32>) {
    let length = node.end - node.start;
    debug_assert!(length >= 2, "a leaf has no children");
    let middle = node.start + length.next_power_of_two() / 2;
    (node.start..middle, middle..node.end)
}

/// The node that `node` is combined with in a group of `size` members; `None` for the whole.
pub fn sibling(node: &Range<u32>, size: u32) -> Option<Range<u32>> {
    let mut parent = 0..size;
    while parent != *node {
        let (left, right) = children(&parent);
        if left == *node {
            return Some(right);
        }
        if right == *node {
            return Some(left);
        }
        parent = if node.start < right.start { left } else { right };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(node: Range<u32>, size: u32) {
        if node.len() == 1 {
            return;
        }
        let (left, right) = children(&node);
        assert_eq!(
            (left.start, left.end, right.end),
            (node.start, right.start, node.end)
        );
        assert_eq!(sibling(&left, size), Some(right.clone()));
        assert_eq!(sibling(&right, size), Some(left.clone()));
        check(left, size);
        check(right, size);
    }

    /// For every size, children partition their node, and siblings find each other.
    #[test]
    fn siblings_are_mutual() {
        for size in 1..70 {
            assert_eq!(sibling(&(0..size), size), None);
            check(0..size, size);
        }
    }
}
