//! The board on which an endpoint publishes its regions: a memfd that only it can write.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering, fence},
};

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};

use super::board_slot::{Entry, Mark, Slot, Word};
use crate::memfd::SharedMapping;

/// An endpoint's own board.
///
/// Each region has one slot that it may be in, by its number. A region that finds its slot taken is not published.
pub(super) struct OwnBoard {
    descriptor: OwnedFd,
    mapping: SharedMapping,
}

/// The board of a peer, which is free to write any nonsense on it at any time.
pub(super) struct PeerBoard(SharedMapping);

impl OwnBoard {
    /// An empty board.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory, or is older than Linux 5.1.
    pub(super) fn create() -> io::Result<Self> {
        let (descriptor, mapping) = SharedMapping::create("ropewalk-board", SIZE)?;
        fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE)?;
        Ok(Self { descriptor, mapping })
    }

    /// Publishes a region, if there is room for it.
    pub(super) fn publish(&self, region: u64, entry: &Entry) {
        if let Some(mark) = Mark::of(region) {
            slot(&self.mapping, region).publish(mark, entry);
        }
    }

    /// Puts any words where the region would be.
    #[cfg(feature = "fuzzing")]
    pub(super) fn fill(&self, region: u64, words: [u64; 8]) {
        slot(&self.mapping, region).fill(words);
    }

    /// Ends what `publish` began; returns whether it had.
    pub(super) fn withdraw(&self, region: u64) -> bool {
        Mark::of(region).is_some_and(|mark| slot(&self.mapping, region).withdraw(mark))
    }
}

impl AsFd for OwnBoard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl PeerBoard {
    /// Maps the board that a peer sent.
    ///
    /// # Errors
    /// If it is none: a descriptor of something else, or of memory that somebody besides its maker could write.
    pub(super) fn of(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        if !fcntl_get_seals(descriptor)?.contains(SealFlags::FUTURE_WRITE) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a board of regions has to be sealed against other writers",
            ));
        }
        Ok(Self(SharedMapping::of(descriptor, SIZE, false)?))
    }

    /// Where a region is described, if it is.
    pub(super) fn slot(&self, region: u64) -> &Slot<AtomicU64> {
        slot(&self.0, region)
    }
}

fn slot(mapping: &SharedMapping, region: u64) -> &Slot<AtomicU64> {
    assert!(mapping.length() >= SIZE, "a board is shorter than its slots");
    let index = (region % SLOTS as u64) as usize;
    // SAFETY: the mapping is SLOTS slots long, starts at a page and so is aligned for them, and lives as long as the
    // borrow. Any bits are valid atomics, and nobody accesses the memory but by atomics. Where it is mapped for reading
    // only, nothing but relaxed loads of 8 bytes are done, which work there.
    unsafe { mapping.start().cast::<Slot<AtomicU64>>().add(index).as_ref() }
}

impl Word for AtomicU64 {
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    fn fence(ordering: Ordering) {
        fence(ordering);
    }
}

/// How many regions can be published at once, if their numbers follow each other.
const SLOTS: usize = 4096;

const SIZE: usize = SLOTS * size_of::<Slot<AtomicU64>>();

const _: () = assert!(size_of::<Slot<AtomicU64>>() == 64, "a slot is a cache line");
