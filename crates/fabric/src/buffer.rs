//! Owned, aligned bytes: what one-sided reads land in and numerical kernels work on.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use bytemuck::{Pod, Zeroable};
use bytes::Bytes;

use crate::arena::Block;

/// An owned run of bytes that starts on a cache line, so that it may be viewed as a slice of any plain type.
///
/// It stands on the heap, or in an endpoint's arena if [`Endpoint::allocate`](crate::Endpoint::allocate) made it.
#[derive(Default)]
pub struct Buffer {
    storage: Storage,
    length: usize,
}

enum Storage {
    Arena(Block),
    Heap(Vec<Line>),
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; Buffer::ALIGNMENT]);

// SAFETY: `Line` is an array of bytes whose size equals its alignment, so it has no padding and any bits are
// valid; zero is.
unsafe impl Zeroable for Line {}
// SAFETY: as above; it is `Copy`, `repr(C)`, inhabited, and holds no pointer or interior mutability.
unsafe impl Pod for Line {}

impl Buffer {
    /// The alignment of the first byte.
    pub const ALIGNMENT: usize = 64;

    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Self {
            storage: Storage::Heap(bytemuck::zeroed_vec(length.div_ceil(Self::ALIGNMENT))),
            length,
        }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
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
            Storage::Arena(block) => block,
            Storage::Heap(lines) => &bytemuck::cast_slice(lines)[..self.length],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Arena(block) => block,
            Storage::Heap(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.length],
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
        Self::Heap(Vec::new())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

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
