use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How a vector is cut: into chunks of equal length, which belong to classes by their number. Each class has a tree
/// of its own, so that the classes spread over links what one tree would put on a few.
///
/// The `index` of a chunk counts the chunks of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunking {
    /// Bytes of the vector.
    pub bytes: u64,
    /// Bytes of a chunk, at least 1; the last one may be shorter.
    pub chunk_bytes: u64,
    /// Number of classes, at least 1.
    pub classes: u16,
}

impl Chunking {
    /// Each class has a tree, and a row for each site in it.
    pub const CLASSES_MAX: u16 = 64;

    /// Bytes of a session that a site keeps for its nodes: behind a full queue of a switch a chunk takes 40 to 80 ms,
    /// its grant as long, and for so long it needs a place.
    pub const WINDOW_BYTES: u64 = 8 << 20;
    /// Chunks of a session that a site keeps at most, with two for each node at least.
    pub const WINDOWS_MAX: u64 = 512;

    /// The number of windows of a node: chunks that are granted, or wait to be folded or sent.
    pub(crate) fn windows(&self) -> u32 {
        let all = (Self::WINDOW_BYTES / self.chunk_bytes.max(1)).min(Self::WINDOWS_MAX);
        (all as u32 / u32::from(self.classes)).max(2)
    }

    /// The number of chunks. An empty vector has one, which is empty: it has to be waited for like any other.
    pub fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk_bytes).max(1)
    }

    /// The number of chunks of a class.
    pub fn chunks_of(&self, class: u16) -> u32 {
        let (chunks, classes) = (self.chunks(), u64::from(self.classes));
        let count = (chunks + classes - 1 - u64::from(class)) / classes;
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The number of a chunk in the vector.
    pub fn chunk(&self, class: u16, index: u32) -> u64 {
        u64::from(index) * u64::from(self.classes) + u64::from(class)
    }

    /// The bytes of the vector that a chunk holds.
    pub fn range(&self, class: u16, index: u32) -> Range<u64> {
        let begin = self.chunk(class, index) * self.chunk_bytes;
        begin.min(self.bytes)..(begin + self.chunk_bytes).min(self.bytes)
    }

    /// Says if it makes sense: a chunk has bytes, there is a class, and the chunks can be counted.
    pub fn is_valid(&self) -> bool {
        self.chunk_bytes > 0
            && (1..=Self::CLASSES_MAX).contains(&self.classes)
            && self.chunks() <= u64::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The chunks of all classes are the vector, each byte once.
        #[test]
        fn chunks_cover_the_vector(bytes in 0_u64..5_000, chunk_bytes in 1_u64..700, classes in 1_u16..20) {
            let chunking = Chunking { bytes, chunk_bytes, classes };
            let mut ranges: Vec<_> = (0..classes)
                .flat_map(|class| (0..chunking.chunks_of(class)).map(move |index| (class, index)))
                .map(|(class, index)| chunking.range(class, index))
                .collect();
            ranges.sort_by_key(|range| (range.start, range.end));
            prop_assert_eq!(ranges.len() as u64, chunking.chunks());
            let mut end = 0;
            for range in ranges {
                prop_assert_eq!(range.start, end);
                end = range.end;
            }
            prop_assert_eq!(end, bytes);
        }
    }
}
