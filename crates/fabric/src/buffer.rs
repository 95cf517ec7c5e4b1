//! Owned, aligned bytes: what one-sided reads land in and numerical kernels work on.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;
use rustix::mm::{Advice, madvise};

use crate::{arena::Block, lent_buffer::Part};

/// An owned run of bytes that starts on a cache line, so that it may be viewed as a slice of any plain type.
///
/// It stands on the heap, or in an endpoint's arena if [`Endpoint::allocate`](crate::Endpoint::allocate) made it. Only
/// what a [`LentBuffer`](crate::LentBuffer) lends may start elsewhere.
#[derive(Default)]
pub struct Buffer {
    storage: Storage,
    length: usize,
}

enum Storage {
    Arena(Block),
    Heap(Aligned),
    Part(Part),
}

/// Bytes on the heap, of which those from `start` on are used: there the first cache line begins.
#[derive(Default)]
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

/// The element type of empty buffers: even they begin on a cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; Buffer::ALIGNMENT]);

impl Buffer {
    /// The alignment of the first byte.
    pub const ALIGNMENT: usize = 64;

    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Self {
            storage: Storage::Heap(Aligned::zeroed(length)),
            length,
        }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Part of a buffer.
    pub(crate) fn part(part: Part) -> Self {
        Self {
            length: part.len(),
            storage: Storage::Part(part),
        }
    }

    /// A buffer in an arena.
    pub(crate) fn in_arena(block: Block) -> Self {
        Self {
            length: block.len(),
            storage: Storage::Arena(block),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.storage {
            _ if self.length == 0 => bytemuck::cast_slice::<Line, u8>(&[]),
            Storage::Arena(block) => block,
            Storage::Heap(heap) => &heap.bytes[heap.start..][..self.length],
            Storage::Part(part) => part.bytes(),
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            _ if self.length == 0 => bytemuck::cast_slice_mut::<Line, u8>(&mut []),
            Storage::Arena(block) => block,
            Storage::Heap(heap) => &mut heap.bytes[heap.start..][..self.length],
            Storage::Part(part) => part.bytes_mut(),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The copy is on the heap, wherever the original is.
impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

/// Without copying: the bytes stay where they are, also those of an arena.
impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self::Heap(Aligned::default())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Aligned {
    fn zeroed(length: usize) -> Self {
        // Not by an allocation that is aligned itself: that one is filled with zeros, while what the system gives for
        // this one is zero already, and comes when it is touched.
        let mut bytes = vec![0; length + Buffer::ALIGNMENT - 1];
        advise_huge_pages(&mut bytes);
        let start = bytes.as_ptr().align_offset(Buffer::ALIGNMENT);
        Self { bytes, start }
    }
}

/// Asks the system for few large pages instead of many small ones, which it would bring one by one. Does nothing if
/// there are few anyway.
pub fn advise_huge_pages(bytes: &mut [u8]) {
    if bytes.len() < HUGE_FROM {
        return;
    }
    let start = bytes.as_mut_ptr();
    let head = start.align_offset(PAGE);
    let length = (bytes.len() - head) / PAGE * PAGE;
    // SAFETY: the pages are all inside memory that is borrowed exclusively, and the advice leaves their content as it
    // is. A system that does not know it is as slow as it was.
    let _ = unsafe { madvise(start.add(head).cast(), length, Advice::LinuxHugepage) };
}

const PAGE: usize = 4096;

/// From this many bytes on large pages are asked for: two of them have room, wherever it begins.
const HUGE_FROM: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;

    /// Lengths that are no multiple of a line keep their length, and the first byte is aligned.
    #[test]
    fn keeps_length_and_alignment() {
        for length in [0, 1, 63, 64, 65, 1000] {
            let buffer = Buffer::copy_of(&vec![7; length]);
            assert_eq!(&*buffer, &vec![7; length][..]);
            assert_eq!(buffer.as_ptr() as usize % Buffer::ALIGNMENT, 0);
        }
        let mut empty = Buffer::default();
        assert!(bytemuck::cast_slice::<u8, u128>(&empty).is_empty());
        assert!(bytemuck::cast_slice_mut::<u8, u128>(&mut empty).is_empty());
    }

    /// A buffer in an arena is used like any other, keeps its place on its way into immutable bytes, and frees it
    /// with the last of them.
    #[test]
    fn arena_buffers_keep_their_place() {
        let arena = Arena::create(4096).unwrap();
        let mut buffer = Buffer::in_arena(arena.allocate(4000).unwrap());
        buffer.fill(3);
        let copy = buffer.clone();
        assert_eq!((copy.len(), arena.offset_of(&copy)), (4000, None));
        let mut place = Buffer::default();
        std::mem::swap(&mut buffer, &mut place);
        assert!(buffer.is_empty());
        let bytes = Bytes::from(place);
        assert_eq!(arena.offset_of(&bytes.slice(5..)), Some(5));
        assert_eq!(bytes, &copy[..]);
        assert!(arena.allocate(4000).is_none());
        drop(bytes);
        assert!(arena.allocate(4000).is_some());
    }
}
