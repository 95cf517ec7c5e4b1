use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::ids::ShareId;

/// How the vector of a result is cut: into chunks of equal length, which belong to classes by their number. Each class
/// has a tree of its own, so that the classes spread over links what one tree would put on a few.
///
/// A result that holds contributions side by side has a block for each, and a chunk never is of parts of two blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunking {
    /// Bytes of a block.
    pub bytes: u64,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Bytes of a chunk, at least 1; the last one of a block may be shorter. If blocks are shorter, a chunk of the
    /// whole is of several of them.
    pub chunk_bytes: u64,
    /// Number of classes of the whole, at least 1. The chunks of a block by itself are one class.
    pub classes: u16,
}

impl Chunking {
    /// Each class has a tree, and a row for each site in it.
    pub const CLASSES_MAX: u16 = 64;

    /// Bytes of a session that a site keeps for its nodes: behind a full queue of a switch a chunk takes 40 to 80 ms,
    /// its grant as long, and for so long it needs a place.
    pub const WINDOW_BYTES: u64 = 8 << 20;
    /// Bytes of the blocks of a gather that are on their way to the root: all come in by one link, where the answers to
    /// what the root sends on wait behind them.
    pub const GATHERED_BYTES: u64 = 256 << 10;
    /// So many blocks are on their way at once at least: a contributor that also sends the result on has other bytes in
    /// its link.
    const BLOCKS_AT_ONCE: u64 = 8;
    /// Chunks of a block that are on their way at once.
    const CHUNKS_OF_BLOCK: u64 = 2;
    /// So much of each class is sent unasked. It may have to wait at its receiver for the row, or for the receiver's
    /// call.
    pub const UNASKED_BYTES: u64 = 32 << 10;
    /// Chunks of a session that a site keeps at most, with two for each node at least.
    pub const WINDOWS_MAX: u64 = 512;

    /// Says if it makes sense: a chunk has bytes, there are a block and a class, and the chunks can be counted.
    pub fn is_valid(&self) -> bool {
        self.chunk_bytes > 0
            && self.blocks > 0
            && self.bytes.checked_mul(self.blocks.into()).is_some()
            && (1..=Self::CLASSES_MAX).contains(&self.classes)
            && self
                .chunks_of_block()
                .checked_mul(self.blocks.into())
                .is_some_and(|chunks| chunks <= u32::MAX.into())
    }

    /// Bytes of the whole.
    pub fn whole_bytes(&self) -> u64 {
        self.bytes * u64::from(self.blocks)
    }

    /// The chunks of a share, which has a block of its own if there are several.
    pub fn cut(&self, share: ShareId) -> Cut {
        let block = (self.blocks > 1 && share != ShareId::SPREAD).then_some(share.0);
        Cut {
            chunking: *self,
            block,
        }
    }

    /// An empty block has one chunk, which is empty: it has to be waited for like any other.
    fn chunks_of_block(&self) -> u64 {
        self.bytes.div_ceil(self.chunk_bytes).max(1)
    }

    /// The number of blocks that are on their way to the root at once.
    pub(crate) fn blocks_at_once(&self) -> u32 {
        let block = Self::CHUNKS_OF_BLOCK * self.bytes.min(self.chunk_bytes).max(1);
        (Self::GATHERED_BYTES / block).clamp(Self::BLOCKS_AT_ONCE, Self::WINDOWS_MAX) as u32
    }

    /// The number of short blocks in a chunk of the whole.
    fn blocks_of_chunk(&self) -> u64 {
        self.chunk_bytes
            .checked_div(self.bytes)
            .map_or(u64::from(self.blocks), |blocks| blocks.max(1))
    }
}

/// The chunks of one share, or of the whole.
///
/// The `index` of a chunk counts the chunks of its class. Ranges are of bytes of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    chunking: Chunking,
    /// The block; `None` for the whole.
    block: Option<u32>,
}

impl Cut {
    /// The number of classes.
    pub fn classes(&self) -> u16 {
        match self.block {
            Some(_) => 1,
            None => self.chunking.classes,
        }
    }

    /// The number of windows of a node: chunks that are granted, or wait to be folded or sent.
    pub(crate) fn windows(&self) -> u32 {
        let (bytes, nodes) = match self.block {
            Some(_) => (
                Chunking::GATHERED_BYTES,
                self.chunking.blocks.min(self.chunking.blocks_at_once()),
            ),
            None => (Chunking::WINDOW_BYTES, self.chunking.classes.into()),
        };
        let all = (bytes / self.chunking.chunk_bytes.max(1)).min(Chunking::WINDOWS_MAX) as u32;
        (all / nodes).max(2)
    }

    /// The number of chunks at the beginning of a class that are sent without a grant.
    pub(crate) fn unasked(&self) -> u32 {
        let bytes = self.chunking.chunk_bytes.min(self.chunking.bytes).max(1);
        match self.chunking.blocks {
            1 => self.windows().min((Chunking::UNASKED_BYTES / bytes) as u32),
            _ => 0,
        }
    }

    /// The number of chunks.
    pub fn chunks(&self) -> u64 {
        let (of_block, blocks) = (self.chunking.chunks_of_block(), u64::from(self.chunking.blocks));
        match self.block {
            None if of_block > 1 => of_block * blocks,
            None => blocks.div_ceil(self.chunking.blocks_of_chunk()),
            Some(_) => of_block,
        }
    }

    /// The number of chunks of a class.
    pub fn chunks_of(&self, class: u16) -> u32 {
        let (chunks, classes) = (self.chunks(), u64::from(self.classes()));
        let count = (chunks + classes - 1 - u64::from(class)) / classes;
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The number of a chunk. Those of the whole are the first ones of the blocks that come at once, then the second
    /// ones, and so on; then those of the next blocks.
    pub fn chunk(&self, class: u16, index: u32) -> u64 {
        u64::from(index) * u64::from(self.classes()) + u64::from(class)
    }

    /// The blocks that a chunk is of, and which chunk of them it is.
    pub(crate) fn blocks(&self, class: u16, index: u32) -> (Range<u32>, u32) {
        let number = self.chunk(class, index);
        if let Some(block) = self.block {
            return (block..block + 1, number as u32);
        }
        let blocks = u64::from(self.chunking.blocks);
        let of_block = self.chunking.chunks_of_block();
        if of_block > 1 {
            let at_once = u64::from(self.chunking.blocks_at_once());
            let first = number / (at_once * of_block) * at_once;
            let within = number - first * of_block;
            let group = at_once.min(blocks.saturating_sub(first)).max(1);
            let block = (first + within % group) as u32;
            return (block..block + 1, (within / group) as u32);
        }
        let together = self.chunking.blocks_of_chunk();
        let (begin, end) = (number * together, (number + 1) * together);
        (begin.min(blocks) as u32..end.min(blocks) as u32, 0)
    }

    /// The class of the chunk of the whole that a chunk is in.
    pub(crate) fn class_of_whole(&self, class: u16, index: u32) -> u16 {
        let Some(block) = self.block.map(u64::from) else {
            return class;
        };
        let number = match self.chunking.chunks_of_block() {
            1 => block / self.chunking.blocks_of_chunk(),
            of_block => {
                let at_once = u64::from(self.chunking.blocks_at_once());
                let first = block / at_once * at_once;
                let group = at_once.min(u64::from(self.chunking.blocks) - first);
                first * of_block + self.chunk(class, index) * group + block - first
            }
        };
        (number % u64::from(self.chunking.classes)) as u16
    }

    /// The bytes of the result that a chunk holds.
    pub fn range(&self, class: u16, index: u32) -> Range<u64> {
        let Chunking {
            bytes, chunk_bytes, ..
        } = self.chunking;
        let (blocks, chunk) = self.blocks(class, index);
        let (begin, end) = (u64::from(blocks.start) * bytes, u64::from(blocks.end) * bytes);
        let begin = begin + u64::from(chunk) * chunk_bytes;
        match blocks.len() {
            1 => begin.min(end)..(begin + chunk_bytes).min(end),
            _ => begin..end,
        }
    }

    /// The first byte of the result that its contributions are for.
    pub fn begin(&self) -> u64 {
        u64::from(self.block.unwrap_or_default()) * self.chunking.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(cut: Cut) -> Vec<Range<u64>> {
        let mut ranges: Vec<_> = (0..cut.classes())
            .flat_map(|class| (0..cut.chunks_of(class)).map(move |index| (class, index)))
            .map(|(class, index)| cut.range(class, index))
            .collect();
        assert_eq!(ranges.len() as u64, cut.chunks());
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges
    }

    proptest! {
        /// The chunks of all classes are the whole, each byte once; so are those of all blocks.
        #[test]
        fn chunks_cover_the_vector(
            bytes in 0_u64..5_000,
            blocks in 1_u32..9,
            chunk_bytes in 1_u64..700,
            classes in 1_u16..20,
        ) {
            let chunking = Chunking { bytes, blocks, chunk_bytes, classes };
            prop_assert!(chunking.is_valid());
            let whole = ranges(chunking.cut(ShareId::SPREAD));
            let by_block: Vec<_> = (0..blocks).flat_map(|block| ranges(chunking.cut(ShareId(block)))).collect();
            for ranges in [whole, by_block] {
                let mut end = 0;
                for range in ranges {
                    prop_assert_eq!(range.start, end);
                    end = range.end;
                }
                prop_assert_eq!(end, chunking.whole_bytes());
            }
        }

        /// A chunk of the whole is of the chunks that it names.
        #[test]
        fn chunks_of_the_whole_are_of_blocks(
            bytes in 0_u64..5_000,
            blocks in 2_u32..9,
            chunk_bytes in 1_u64..700,
            class in 0_u16..3,
            index in 0_u32..40,
        ) {
            let chunking = Chunking { bytes, blocks, chunk_bytes, classes: 3 };
            let whole = chunking.cut(ShareId::SPREAD);
            prop_assume!(index < whole.chunks_of(class));
            let (of, chunk) = whole.blocks(class, index);
            let parts = of.clone().map(|block| chunking.cut(ShareId(block)).range(0, chunk));
            let parts: Vec<_> = parts.collect();
            let range = whole.range(class, index);
            for block in of {
                prop_assert_eq!(chunking.cut(ShareId(block)).class_of_whole(0, chunk), class);
            }
            prop_assert_eq!(parts.first().map(|part| part.start), Some(range.start));
            prop_assert_eq!(parts.last().map(|part| part.end), Some(range.end));
        }
    }
}
