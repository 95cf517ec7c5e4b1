//! Memory as a ring sees it: words and bytes that another process reads and writes at the same time.

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use super::layout::{INLINE_MAX, LINE_SIZE};
use crate::memfd::SharedMapping;

/// Where a ring keeps what its two ends share.
///
/// Offsets are in bytes from the ring's start. Nothing that is read is to be believed. The one thing the two
/// ends rely on among themselves is the order of their words; bytes have none but by the words around them.
pub(super) trait RingMemory {
    /// How many bytes there are.
    fn size(&self) -> usize;

    /// The word at a multiple of 8.
    ///
    /// # Panics
    /// If it is not inside the memory, as all others here.
    fn load(&self, offset: usize, ordering: Ordering) -> u64;

    /// Sets the word at a multiple of 8.
    fn store(&self, offset: usize, value: u64, ordering: Ordering);

    /// A sequentially consistent fence.
    fn fence(&self);

    /// The tag of a slot, whose payload is copied out.
    fn read_slot(&self, slot: usize, into: &mut [u8; INLINE_MAX]) -> u64;

    /// Writes tag and payload of a slot, and then publishes its header. All is written word by word: so it was mostly
    /// made, and so it can be read before it is in memory, where it comes only behind all that was written to the other
    /// process before.
    fn write_slot(&self, slot: usize, header: u64, tag: u64, payload: &[u8]);

    /// Copies bytes out, to the end of a vector.
    fn append(&self, offset: usize, length: usize, into: &mut Vec<u8>);

    /// Copies bytes in.
    fn write(&self, offset: usize, from: &[u8]);
}

/// A part of a mapping that is shared with another process.
#[derive(Debug)]
pub(super) struct Window {
    start: NonNull<u8>,
    size: usize,
    /// Keeps the memory mapped.
    _mapping: Arc<SharedMapping>,
}

// SAFETY: the memory is the process's, not a thread's, stays mapped as long as the window lives, and is only
// reached through atomics and raw copies.
unsafe impl Send for Window {}

impl Window {
    /// `size` bytes of a mapping, from `offset` on. Both are multiples of a cache line.
    ///
    /// Returns nothing if they are not inside it.
    pub(super) fn new(mapping: Arc<SharedMapping>, offset: usize, size: usize) -> Option<Self> {
        const LINE: usize = 64;
        let inside = offset
            .checked_add(size)
            .is_some_and(|end| end <= mapping.length());
        if !inside || !offset.is_multiple_of(LINE) || !size.is_multiple_of(LINE) {
            return None;
        }
        // SAFETY: just checked to be inside the mapping.
        let start = unsafe { mapping.start().add(offset) };
        Some(Self {
            start,
            size,
            _mapping: mapping,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset < self.size,
            "no word of this ring"
        );
        // SAFETY: inside the mapping, because `size` is a multiple of 8 too; aligned, because mappings begin at
        // pages; and any bits are a word. The other process is expected to use atomics as well; if it does
        // not, we still read some bits.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast().as_ptr()) }
    }

    fn slot(&self, slot: usize) -> &[AtomicU64; LINE_SIZE / 8] {
        assert!(
            slot.is_multiple_of(8) && slot <= self.size && LINE_SIZE <= self.size - slot,
            "no slot of this ring"
        );
        // SAFETY: as for a word, of which these are many.
        unsafe { self.start.add(slot).cast().as_ref() }
    }

    fn bytes(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            offset <= self.size && length <= self.size - offset,
            "no bytes of this ring"
        );
        // SAFETY: just checked to be inside the mapping.
        unsafe { self.start.add(offset).as_ptr() }
    }
}

impl RingMemory for Window {
    fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn load(&self, offset: usize, ordering: Ordering) -> u64 {
        self.word(offset).load(ordering)
    }

    #[inline]
    fn store(&self, offset: usize, value: u64, ordering: Ordering) {
        self.word(offset).store(value, ordering);
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn read_slot(&self, slot: usize, into: &mut [u8; INLINE_MAX]) -> u64 {
        let [_, tag, payload @ ..] = self.slot(slot);
        for (into, word) in into.as_chunks_mut::<8>().0.iter_mut().zip(payload) {
            *into = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        tag.load(Ordering::Relaxed)
    }

    #[inline]
    fn write_slot(&self, slot: usize, header: u64, tag: u64, payload: &[u8]) {
        let [first, second, words @ ..] = self.slot(slot);
        let (whole, rest) = payload.as_chunks::<8>();
        for (word, from) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        if let Some(word) = words.get(whole.len())
            && !rest.is_empty()
        {
            let bytes = rest.iter().rev();
            let last = bytes.fold(0, |last: u64, byte| last << 8 | u64::from(*byte));
            word.store(last.to_le(), Ordering::Relaxed);
        }
        second.store(tag, Ordering::Relaxed);
        first.store(header, Ordering::Release);
    }

    fn append(&self, offset: usize, length: usize, into: &mut Vec<u8>) {
        let from = self.bytes(offset, length);
        into.reserve(length);
        // SAFETY: both are that long, with room for `length` bytes just reserved behind those that the vector has, and
        // do not overlap: nothing of ours lies in shared memory. All of them are written before they count. If the
        // peer writes there meanwhile, against the protocol, the copy has some mixture of bytes; it is looked at only
        // after it was made.
        unsafe {
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(into.len()), length);
            into.set_len(into.len() + length);
        }
    }

    #[inline]
    fn write(&self, offset: usize, from: &[u8]) {
        let into = self.bytes(offset, from.len());
        // SAFETY: both are that long and do not overlap. The peer reads it only after it was published; if it
        // does so earlier, the damage is its own.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
    }
}
