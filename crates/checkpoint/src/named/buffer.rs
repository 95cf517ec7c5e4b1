//! The memory from which a state is written in the background.

use std::hint::black_box;

/// Memory that is used again for each save, so that its pages are touched only once.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    /// The range of the memory that is in use.
    start: usize,
    end: usize,
}

impl Buffer {
    /// A buffer for so many bytes, whose pages exist: the first touch of a page takes longer than the copy into it.
    pub(super) fn touched(bytes: usize) -> Self {
        let mut memory = vec![0; bytes + SLACK];
        for page in memory.chunks_mut(PAGE) {
            page[0] = black_box(0);
        }
        Self {
            memory,
            start: 0,
            end: 0,
        }
    }

    /// Room for so many bytes, of which the one at `offset` stands as far into its page as `source` into its own.
    ///
    /// A buffer that was long enough before keeps its memory.
    pub(super) fn room(&mut self, bytes: usize, offset: usize, source: *const u8) -> &mut [u8] {
        if self.memory.len() < bytes + SLACK {
            self.memory.resize(bytes + SLACK, 0);
        }
        let target = self.memory.as_ptr().addr().wrapping_add(offset);
        self.start = distance(target, source.addr());
        self.end = self.start + bytes;
        &mut self.memory[self.start..self.end]
    }

    /// The bytes of the last room.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

/// Copies bytes to memory of the same length, at the full speed of the machine.
///
/// glibc's `memcpy` of more than three quarters of the largest cache stores past the caches. If the target stands
/// little further in its page than the source, its loads wait for stores that only seem to be to the same place:
/// measured for 256 MiB on an AMD Milan, 75 ms instead of 20. Short pieces go through the caches, in 29 ms.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    let ahead = distance(from.as_ptr().addr(), to.as_ptr().addr());
    if (1..SLOW_AHEAD).contains(&ahead) {
        for (to, from) in to.chunks_mut(PIECE).zip(from.chunks(PIECE)) {
            to.copy_from_slice(from);
        }
    } else {
        to.copy_from_slice(from);
    }
}

/// How far the place of `to` in its page is after that of `from`, around the end of the page.
fn distance(from: usize, to: usize) -> usize {
    to.wrapping_sub(from) % PAGE
}

const PAGE: usize = 4096;
/// The largest distance by which a room may be moved.
const SLACK: usize = PAGE - 1;
/// From this distance on copies in one piece are the faster ones.
const SLOW_AHEAD: usize = 1024;
const PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A room has the length and the place in its page that were asked for, also in a buffer that has to grow, and
    /// keeps what is written there.
    #[test]
    fn rooms_stand_like_their_sources() {
        let mut buffer = Buffer::touched(9000);
        let memory = buffer.memory.as_ptr();
        for (bytes, offset, source) in [
            (9000, 128, 64),
            (9000, 0, 4095),
            (1, 0, 16),
            (0, 0, 1),
            (20_000, 4160, 4096),
        ] {
            let room = buffer.room(bytes, offset, std::ptr::without_provenance(source));
            assert_eq!(room.len(), bytes);
            let place = room.as_ptr().addr() + offset;
            assert_eq!(place % PAGE, source % PAGE, "{bytes} bytes, {offset}");
            room.fill(bytes as u8);
            assert_eq!(buffer.bytes(), vec![bytes as u8; bytes]);
            assert!(bytes > 9000 || buffer.memory.as_ptr() == memory);
        }
    }

    /// A copy brings every byte, at whatever distance in their pages the two stand.
    #[test]
    fn copies_are_whole() {
        let from: Vec<u8> = (0..3 * PIECE + 5).map(|at| (at % 251) as u8).collect();
        let mut memory = vec![0; from.len() + PAGE];
        for shift in [0, 1, 64, 1000, 1024, 2048, 4095] {
            let to = &mut memory[shift..shift + from.len()];
            to.fill(0);
            copy(to, &from);
            assert_eq!(to, from);
        }
    }
}
