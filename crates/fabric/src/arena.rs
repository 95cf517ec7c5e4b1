//! Memory that peers on this host can map: what is allocated from it they read and write without our help.

mod free_list;

use std::{
    fmt, io, mem,
    ops::{Deref, DerefMut, Range},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fs::{FallocateFlags, fallocate};

use self::free_list::FreeList;
use crate::{Buffer, fork_guard::ForkGuard, memfd::SharedMapping, streamed_copy::copy_streamed};

/// A sparse memfd with an allocator over it. Its pages come when they are touched.
///
/// A child that was forked shares the memory but not the bookkeeping: it may read what it inherited, but gets nothing
/// new and gives nothing back.
pub(crate) struct Arena {
    descriptor: OwnedFd,
    mapping: Arc<SharedMapping>,
    /// The part of the mapping that it is.
    range: Range<usize>,
    fork_guard: ForkGuard,
    free: Mutex<FreeList>,
}

impl Arena {
    /// An arena of `length` bytes, rounded down to whole pages.
    ///
    /// # Errors
    /// If the system is out of descriptors or address space, or the process may not make files of that size.
    pub(crate) fn create(length: u64) -> io::Result<Arc<Self>> {
        let length = usize::try_from(length).map_err(io::Error::other)? / PAGE * PAGE;
        let (descriptor, mapping) = SharedMapping::create("ropewalk-arena", length)?;
        Self::within(descriptor, Arc::new(mapping), 0..length)
    }

    /// An arena that is part of a mapping of this memory, from page to page. Nobody else gets memory from there.
    ///
    /// # Errors
    /// If the system is out of memory.
    pub(crate) fn within(
        descriptor: OwnedFd,
        mapping: Arc<SharedMapping>,
        range: Range<usize>,
    ) -> io::Result<Arc<Self>> {
        assert!(
            range.end <= mapping.length() && range.start.is_multiple_of(PAGE),
            "an arena at {range:?}"
        );
        Ok(Arc::new(Self {
            descriptor,
            mapping,
            fork_guard: ForkGuard::new()?,
            free: Mutex::new(FreeList::new(range.len())),
            range,
        }))
    }

    /// How long the mapping is, in bytes.
    pub(crate) fn length(&self) -> usize {
        self.mapping.length()
    }

    /// Where `bytes` are in the mapping, from its beginning, if they are.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.mapping.start().as_ptr() as usize)?;
        let end = offset.checked_add(bytes.len())?;
        (end <= self.length()).then_some(offset as u64)
    }

    /// Memory for `length` bytes, if there is a hole of that size. What is in it is left from its last use.
    pub(crate) fn allocate(self: &Arc<Self>, length: usize) -> Option<Block> {
        if length == 0 || self.fork_guard.is_forked() {
            return None;
        }
        let alignment = if length > PAGE_ALIGNED_ABOVE {
            PAGE
        } else {
            Buffer::ALIGNMENT
        };
        let reserved = length.checked_next_multiple_of(alignment)?;
        let offset = self.with_free(|free| free.allocate(reserved, alignment))?;
        Some(Block {
            arena: Arc::clone(self),
            offset: self.range.start + offset,
            length,
            reserved,
        })
    }

    fn release(&self, offset: usize, reserved: usize) {
        if self.fork_guard.is_forked() {
            return;
        }
        // Under the lock: nobody may get the memory before its pages are given back.
        self.with_free(|free| {
            if let Some(unused) = free.release(offset - self.range.start, reserved, KEPT_BYTES_MAX) {
                // Pages that cannot be given back stay, as they would have with more to keep.
                let _ = fallocate(
                    &self.descriptor,
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    (self.range.start + unused.start) as u64,
                    unused.len() as u64,
                );
            }
        });
    }

    fn with_free<T>(&self, change: impl FnOnce(&mut FreeList) -> T) -> T {
        // The list's steps panic only if it is broken already, which no thread can mend.
        change(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

/// A piece of an arena that belongs to its holder, until it is dropped.
#[derive(Debug)]
pub struct Block {
    arena: Arc<Arena>,
    /// From the beginning of the mapping.
    offset: usize,
    length: usize,
    reserved: usize,
}

impl Block {
    /// Fills it with a copy of `bytes`, past the caches of the processors that have read what was in it.
    ///
    /// # Panics
    /// If there are more or fewer bytes than it has.
    pub fn fill_from(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.length, "a block has a length of its own");
        // SAFETY: the block is borrowed exclusively, and as long.
        unsafe { copy_streamed(bytes, NonNull::from(&mut **self).cast()) };
    }

    /// Where it begins in the mapping.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the free list gave `offset..offset + length`, which is inside the mapping, to this block alone; the
        // arena keeps it mapped. Any bytes are valid, and they are there: a page that nobody touched is zero.
        // Another process writes them only while they are in a region that is exposed for writing, when nobody here
        // looks at them. (One that does not keep to that has proven that it belongs to the job, and could as well
        // write any other memory of ours, by ptrace.)
        unsafe {
            std::slice::from_raw_parts(self.arena.mapping.start().as_ptr().add(self.offset), self.length)
        }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the block is borrowed exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(self.arena.mapping.start().as_ptr().add(self.offset), self.length)
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena.release(self.offset, mem::take(&mut self.reserved));
    }
}

const PAGE: usize = 4096;

/// Blocks larger than this, in bytes, begin at a page, so that whole pages can be given back.
const PAGE_ALIGNED_ABOVE: usize = 64 << 10;

/// How many bytes of free memory may keep their pages. Measured: to touch 64 MiB anew costs 40 ms, ten times
/// what copying it does; so what is used again and again should stay.
const KEPT_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use rustix::fs::fstat;

    use super::*;

    fn resident_bytes(arena: &Arena) -> i64 {
        fstat(arena).unwrap().st_blocks * 512
    }

    /// Blocks are where they say, aligned, apart from each other, and reused when dropped, by whatever thread.
    #[test]
    fn blocks_are_apart_and_reused() {
        let arena = Arena::create(1 << 20).unwrap();
        let mut first = arena.allocate(100_000).unwrap();
        let mut second = arena.allocate(5).unwrap();
        first.fill(1);
        second.fill(2);
        assert!(first.iter().all(|&byte| byte == 1));
        assert_eq!(first.as_ptr() as usize % PAGE, 0);
        assert_eq!(second.as_ptr() as usize % Buffer::ALIGNMENT, 0);
        let offset = arena.offset_of(&first[10..]).unwrap();
        assert_eq!(offset, first.offset as u64 + 10);
        assert_eq!(arena.offset_of(&[0; 10]), None);
        assert!(arena.allocate(1 << 20).is_none());
        std::thread::spawn(|| drop((first, second))).join().unwrap();
        let whole = arena.allocate(1 << 20).unwrap();
        assert_eq!(arena.offset_of(&whole), Some(0));
        assert!(arena.allocate(1).is_none() && arena.allocate(0).is_none());
    }

    /// An arena costs only the pages that are touched, and gives back those of much that was freed.
    #[test]
    fn pages_come_and_go() {
        let arena = Arena::create(1 << 30).unwrap();
        assert_eq!(resident_bytes(&arena), 0);
        let mut large = arena.allocate(KEPT_BYTES_MAX + (1 << 20)).unwrap();
        for page in large.chunks_mut(PAGE) {
            page[0] = 1;
        }
        assert!(resident_bytes(&arena) > KEPT_BYTES_MAX as i64);
        drop(large);
        assert_eq!(resident_bytes(&arena), 0);
    }
}
