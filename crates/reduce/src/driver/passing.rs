//! Parts of a result on their way through a rank.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use crate::folding::{Memory, Operand};

/// The last parts of the result that came from another rank, as they came. Those that this rank passes on it sends from
/// here, which spares a copy of each; one that is not here any more is copied out of the result.
#[derive(Default)]
pub(super) struct Passing {
    /// The parts, with their first bytes in the result.
    parts: VecDeque<(u64, Bytes)>,
    bytes: usize,
}

impl Passing {
    /// The most that is kept, in bytes: some long chunks.
    const BYTES_MAX: usize = 2 << 20;

    /// Keeps a part that is in the result now. Memory that a provider shares with other processes is scarce, and given
    /// back.
    pub(super) fn keep(&mut self, begin: u64, part: Operand) {
        let Operand::Free(memory @ Memory::Heap(_)) = part else {
            return;
        };
        let part = memory.freeze();
        self.bytes += part.len();
        self.parts.push_back((begin, part));
        while self.bytes > Self::BYTES_MAX
            && let Some((_, part)) = self.parts.pop_front()
        {
            self.bytes -= part.len();
        }
    }

    /// A part, if it is here.
    pub(super) fn get(&self, range: &Range<u64>) -> Option<Bytes> {
        let is_it =
            |(begin, part): &&(u64, Bytes)| *begin == range.start && part.len() as u64 == range.end - begin;
        self.parts.iter().find(is_it).map(|(_, part)| part.clone())
    }

    /// This range of the result is changed.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        let bytes = &mut self.bytes;
        self.parts.retain(|(begin, part)| {
            let is_kept = begin + part.len() as u64 <= range.start || range.end <= *begin;
            *bytes -= if is_kept { 0 } else { part.len() };
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(length: usize, byte: u8) -> Operand {
        Operand::Free(Memory::from(&vec![byte; length][..]))
    }

    /// The last parts are here, as far as there is room for them, but for those that have changed.
    #[test]
    fn the_last_parts_are_kept() {
        let mut passing = Passing::default();
        passing.keep(0, part(100, 1));
        passing.keep(100, part(50, 2));
        passing.keep(150, part(50, 3));
        assert_eq!(passing.get(&(0..100)).unwrap(), [1; 100][..]);
        passing.forget(&(99..100));
        passing.forget(&(150..151));
        assert_eq!((passing.get(&(0..100)), passing.get(&(150..200))), (None, None));
        assert_eq!(passing.get(&(100..150)).unwrap(), [2; 50][..]);
        assert_eq!((passing.get(&(0..50)), passing.get(&(100..151))), (None, None));
        passing.keep(200, part(Passing::BYTES_MAX - 10, 4));
        assert_eq!((passing.get(&(100..150)), passing.parts.len()), (None, 1));
        passing.keep(0, part(Passing::BYTES_MAX + 1, 5));
        assert_eq!((passing.parts.len(), passing.bytes), (0, 0));
    }
}
