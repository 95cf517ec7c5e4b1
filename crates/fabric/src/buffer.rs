//! Owned, aligned bytes: what one-sided reads land in and numerical kernels work on.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use bytemuck::{Pod, Zeroable};

/// An owned run of bytes that starts on a cache line, so that it may be viewed as a slice of any plain type.
#[derive(Clone, Default)]
pub struct Buffer {
    lines: Vec<Line>,
    length: usize,
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
            lines: bytemuck::zeroed_vec(length.div_ceil(Self::ALIGNMENT)),
            length,
        }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
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

    /// Lengths that are no multiple of a line keep their length, and the first byte is aligned.
    #[test]
    fn keeps_length_and_alignment() {
        for length in [0, 1, 63, 64, 65, 1000] {
            let buffer = Buffer::copy_of(&vec![7; length]);
            assert_eq!(&*buffer, &vec![7; length][..]);
            assert_eq!(buffer.as_ptr() as usize % Buffer::ALIGNMENT, 0);
        }
    }
}
