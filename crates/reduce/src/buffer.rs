//! Memory for contributions that are never copied.

use std::{
    fmt, io,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use bytemuck::Pod;
use ropewalk_fabric::memfd::{ReadOnlyMemfd, WritableMemfd};

/// A vector of fixed length that [`Group::reduce_buffer`](crate::Group::reduce_buffer) takes without a copy;
/// [`Job::buffer`](crate::Job::buffer) makes one.
///
/// It is used as a `&mut [T]`. A reduction takes the buffer and gives it back at its end, with its content. Meanwhile
/// nobody can write the memory: a write by a pointer from before kills the process by SIGSEGV. Processes that are
/// forked off this one do not have the memory, and are killed likewise if they touch it; those that are started by
/// `exec` have nothing to do with it.
pub struct Buffer<T> {
    /// `None` if there is nothing in it.
    memory: Option<WritableMemfd>,
    length: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// A buffer of `length` zero elements.
    ///
    /// # Errors
    /// If the system is out of descriptors or address space, or the process may not have as much.
    pub(crate) fn zeroed(length: usize) -> io::Result<Self> {
        assert!(
            size_of::<T>() > 0 && align_of::<T>() <= PAGE,
            "an element has a size, and is aligned to a page at most"
        );
        let memory = match length {
            0 => None,
            length => Some(WritableMemfd::unforked(NAME, capacity::<T>(length)?)?),
        };
        Ok(Self {
            memory,
            length,
            element: PhantomData,
        })
    }

    /// Makes the memory read-only.
    ///
    /// # Errors
    /// If the system refuses, or there is no memory for an empty one.
    pub(crate) fn lend(self) -> Result<Arc<ReadOnlyMemfd>, (Self, io::Error)> {
        let length = self.length;
        let memory = match self.memory {
            Some(memory) => Ok(memory),
            // The agent holds something for every contribution.
            None => WritableMemfd::unforked(NAME, PAGE),
        };
        let memory = memory.map_err(|error| (None, error));
        let lent = memory.and_then(|memory| {
            let lent = memory.into_read_only();
            lent.map_err(|(memory, error)| (Some(memory), error))
        });
        lent.map(Arc::new).map_err(|(memory, error)| {
            let buffer = Self {
                memory: memory.filter(|_| length > 0),
                length,
                element: PhantomData,
            };
            (buffer, error)
        })
    }

    /// Makes memory that was lent writable again. Who still reads it goes on with it, and the buffer gets a copy.
    ///
    /// # Errors
    /// If there is no memory for a copy.
    pub(crate) fn of_lent(memory: Arc<ReadOnlyMemfd>, length: usize) -> io::Result<Self> {
        if length == 0 {
            return Self::zeroed(0);
        }
        let memory = match Arc::try_unwrap(memory).map(ReadOnlyMemfd::into_writable) {
            Ok(Ok(memory)) => memory,
            Ok(Err((memory, _))) => copy(&memory)?,
            Err(memory) => copy(&memory)?,
        };
        Ok(Self {
            memory: Some(memory),
            length,
            element: PhantomData,
        })
    }

    /// A buffer without anything in it.
    pub(crate) fn empty() -> Self {
        Self {
            memory: None,
            length: 0,
            element: PhantomData,
        }
    }
}

fn capacity<T>(length: usize) -> io::Result<usize> {
    let bytes = length.checked_mul(size_of::<T>());
    let pages = bytes.and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
    pages.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::OutOfMemory,
            "a buffer is longer than the address space",
        )
    })
}

fn copy(memory: &ReadOnlyMemfd) -> io::Result<WritableMemfd> {
    let mut copy = WritableMemfd::unforked(NAME, memory.len())?;
    copy.copy_from_slice(memory);
    Ok(copy)
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes = self
            .memory
            .as_deref()
            .map(|bytes| &bytes[..self.length * size_of::<T>()]);
        bytes.map_or(&[], bytemuck::cast_slice)
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let length = self.length * size_of::<T>();
        let bytes = self.memory.as_deref_mut().map(|bytes| &mut bytes[..length]);
        bytes.map_or(&mut [], bytemuck::cast_slice_mut)
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// Memory of this name shows in `/proc/PID/maps`.
const NAME: &str = "ropewalk-buffer";
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer comes back with its content and in its place; if somebody still reads the memory it is a copy.
    #[test]
    fn a_buffer_comes_back() {
        let mut buffer = Buffer::<u64>::zeroed(1000).unwrap();
        assert!(buffer.len() == 1000 && buffer.iter().all(|&element| element == 0));
        buffer[999] = 7;
        let place = buffer.as_ptr();
        let lent = buffer.lend().unwrap();
        let mut buffer = Buffer::<u64>::of_lent(lent, 1000).unwrap();
        assert_eq!((buffer.as_ptr(), buffer[999], buffer.len()), (place, 7, 1000));
        buffer[0] = 8;
        let lent = buffer.lend().unwrap();
        let reader = Arc::clone(&lent);
        let mut buffer = Buffer::<u64>::of_lent(lent, 1000).unwrap();
        assert_ne!(buffer.as_ptr(), place);
        assert_eq!((buffer[0], buffer[999]), (8, 7));
        buffer[0] = 9;
        assert_eq!(reader[..8], 8_u64.to_ne_bytes());
    }

    /// No elements are a buffer too, as are those whose alignment is more than a byte's.
    #[test]
    fn no_size_is_special() {
        for length in [0, 1, 255, 256, 257] {
            let mut buffer = Buffer::<u128>::zeroed(length).unwrap();
            buffer.fill(3);
            let buffer = Buffer::<u128>::of_lent(buffer.lend().unwrap(), length).unwrap();
            assert_eq!(*buffer, *vec![3_u128; length]);
        }
        assert!(Buffer::<u64>::zeroed(usize::MAX / 8).is_err());
        assert!(Buffer::<u64>::zeroed(usize::MAX).is_err());
    }
}
