//! A buffer that several fill at once, each its part.

use std::{ptr::NonNull, slice, sync::Arc};

use crate::Buffer;

/// A buffer that lends itself out in parts, one after the other, which are buffers of their own and may go to as
/// many operations, and that is whole again when all have come back.
///
/// ```
/// use ropewalk_fabric::{Buffer, LentBuffer};
///
/// let mut lent = LentBuffer::new(Buffer::zeroed(5));
/// let (mut first, mut second) = (lent.lend(2), lent.lend(3));
/// second.fill(2);
/// first.fill(1);
/// drop((first, second));
/// assert_eq!(*lent.into_buffer().unwrap(), [1, 1, 2, 2, 2]);
/// ```
#[derive(Debug)]
pub struct LentBuffer {
    whole: Arc<Whole>,
    /// The position before which all bytes are or were lent.
    next: usize,
}

/// A part that was lent; nobody else has its bytes.
#[derive(Debug)]
pub(crate) struct Part {
    whole: Arc<Whole>,
    start: usize,
    length: usize,
}

#[derive(Debug)]
struct Whole {
    /// Where the buffer's bytes are, as long as nobody uses the buffer itself.
    bytes: NonNull<u8>,
    length: usize,
    buffer: Buffer,
}

// SAFETY: the pointer is into the buffer beside it, which is `Send`; who uses it has a part of its own.
unsafe impl Send for Whole {}
// SAFETY: of a shared `Whole` only the numbers are used; the bytes are reached by parts, which overlap with no other.
unsafe impl Sync for Whole {}

impl LentBuffer {
    /// Nothing is lent of it yet.
    pub fn new(mut buffer: Buffer) -> Self {
        let bytes = NonNull::from(&mut *buffer).cast();
        let length = buffer.len();
        Self {
            whole: Arc::new(Whole {
                bytes,
                length,
                buffer,
            }),
            next: 0,
        }
    }

    /// The next `length` bytes, which start where the last ones ended: on a cache line only if those were a
    /// multiple of one. They are lent once, whatever becomes of them.
    ///
    /// # Panics
    /// If there are not as many left.
    pub fn lend(&mut self, length: usize) -> Buffer {
        let (start, left) = (self.next, self.whole.length - self.next);
        assert!(
            length <= left,
            "{length} bytes of a buffer are to be lent, and {left} are left"
        );
        self.next += length;
        Buffer::part(Part {
            whole: self.whole.clone(),
            start,
            length,
        })
    }

    /// The buffer, with what was written into its parts; `None` if one of them is still out.
    pub fn into_buffer(self) -> Option<Buffer> {
        Some(Arc::into_inner(self.whole)?.buffer)
    }
}

impl Part {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `lend` gave this range out once, inside the buffer, which lives in `whole` and is used by nobody
        // until all parts are gone; its bytes do not move with it.
        unsafe { slice::from_raw_parts(self.whole.bytes.add(self.start).as_ptr(), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.whole.bytes.add(self.start).as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Parts are filled by several threads and are, put together, the buffer; it does not come back before them.
    #[test]
    fn parts_are_the_buffer() {
        let mut lent = LentBuffer::new(Buffer::zeroed(1000));
        let parts: Vec<_> = [0, 1, 63, 64, 872]
            .into_iter()
            .map(|length| lent.lend(length))
            .collect();
        let filled = thread::scope(|scope| {
            let fillers = (1..).zip(parts).map(|(number, mut part)| {
                scope.spawn(move || {
                    part.fill(number);
                    assert!(part.iter().all(|&byte| byte == number));
                    part
                })
            });
            let fillers: Vec<_> = fillers.collect();
            fillers
                .into_iter()
                .map(|filler| filler.join().unwrap())
                .collect::<Vec<_>>()
        });
        drop(filled);
        let expected = [&[2; 1][..], &[3; 63], &[4; 64], &[5; 872]].concat();
        assert_eq!(*lent.into_buffer().unwrap(), expected);
        let mut lent = LentBuffer::new(Buffer::zeroed(1));
        let part = lent.lend(1);
        assert!(lent.into_buffer().is_none(), "a part is out");
        drop(part);
    }

    /// The bytes written into a part stay when the part is gone, wherever the buffer stands, and bytes that
    /// were not lent stay as they were.
    #[test]
    fn what_was_written_stays() {
        let mut lent = LentBuffer::new(Buffer::copy_of(&[7; 10]));
        drop(lent.lend(3));
        let mut part = lent.lend(4);
        part.copy_from_slice(&[1, 2, 3, 4]);
        let bytes = bytes::Bytes::from(part);
        assert_eq!(bytes, [1, 2, 3, 4][..]);
        drop(bytes);
        assert_eq!(*lent.into_buffer().unwrap(), [7, 7, 7, 1, 2, 3, 4, 7, 7, 7]);
    }

    /// No more is lent than there is.
    #[test]
    #[should_panic(expected = "4 bytes of a buffer are to be lent, and 3 are left")]
    fn no_more_is_lent_than_there_is() {
        let mut lent = LentBuffer::new(Buffer::zeroed(5));
        let _part = lent.lend(2);
        lent.lend(4);
    }
}
