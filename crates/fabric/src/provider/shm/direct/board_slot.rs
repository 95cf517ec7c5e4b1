//! The entry about one region in memory that peers read, and the rules by which it comes and goes.

use std::sync::atomic::Ordering;

use subtle::ConstantTimeEq;

use crate::{AccessError, region_table::Access};

/// A word that another process may read or write at any time.
pub(super) trait Word {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    fn fence(ordering: Ordering);
}

/// The place on a board for what is known of one region. All zero, it is free.
///
/// Region numbers are never used twice, so that the number itself says whether the other words are what a reader
/// takes them for: it comes last, goes first, and is read before and after them.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Slot<W> {
    /// The region's [`Mark`], or 0.
    mark: W,
    token: [W; 2],
    place: W,
    length: W,
    flags: W,
    _unused: [W; 2],
}

/// A region's number plus 1: how a word names a region, or with 0 none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

/// The content of a slot about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) token: u128,
    pub(super) place: Place,
    pub(super) length: u64,
    pub(super) writable: bool,
}

/// Where a region begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this address in its process.
    Address(u64),
    /// This far from the beginning of its endpoint's arena.
    Arena(u64),
}

/// How an attempt at one-sided access without the owner's help ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The bytes were copied.
    Done,
    /// It has to be asked for by message: only the owner can reach the memory, or say what became of it.
    NotDirect,
    /// The owner would have refused it, too. Bytes that were copied are not to be looked at.
    Refused(AccessError),
}

impl Mark {
    /// None for the one number that no region has.
    pub(super) fn of(region: u64) -> Option<Self> {
        region.checked_add(1).map(Self)
    }
}

impl<W: Word> Slot<W> {
    /// Lets peers know of a region. Returns whether there was room.
    pub(super) fn publish(&self, mark: Mark, entry: &Entry) -> bool {
        if self.mark.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let (place, arena) = match entry.place {
            Place::Address(address) => (address, 0),
            Place::Arena(offset) => (offset, ARENA),
        };
        // Whoever reads one of these no longer reads the mark of the region that was here before: `withdraw`
        // stands between.
        self.token[0].store(entry.token as u64, Ordering::Relaxed);
        self.token[1].store((entry.token >> 64) as u64, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.length.store(entry.length, Ordering::Relaxed);
        let writable = if entry.writable { WRITABLE } else { 0 };
        self.flags.store(arena | writable, Ordering::Relaxed);
        self.mark.store(mark.0, Ordering::Release);
        true
    }

    /// Writes any words.
    #[cfg(feature = "fuzzing")]
    pub(super) fn fill(&self, words: [u64; 8]) {
        let Self {
            mark,
            token: [low, high],
            place,
            length,
            flags,
            _unused: [first, second],
        } = self;
        for (word, value) in [mark, low, high, place, length, flags, first, second]
            .into_iter()
            .zip(words)
        {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Makes peers forget a region, if they know of it here. Whoever reads what its memory is used for from now on
    /// finds out that it was too late. Who writes it may still be at it: see [`is_written`].
    pub(super) fn withdraw(&self, mark: Mark) -> bool {
        if self.mark.load(Ordering::Relaxed) != mark.0 {
            return false;
        }
        self.mark.store(0, Ordering::Relaxed);
        W::fence(Ordering::SeqCst);
        true
    }

    /// Does what has to be done to read a region: `copy` gets what is said about it.
    pub(super) fn read(&self, mark: Mark, copy: impl FnOnce(&Entry) -> Attempt) -> Attempt {
        let Some(entry) = self.entry(mark) else {
            return Attempt::NotDirect;
        };
        let outcome = copy(&entry);
        W::fence(Ordering::Acquire);
        self.confirm(mark, outcome)
    }

    /// Does what has to be done to write a region: `copy` gets what is said about it. `writing` is the word that the
    /// owner of the board looks at before it takes memory back.
    pub(super) fn write(&self, mark: Mark, writing: &W, copy: impl FnOnce(&Entry) -> Attempt) -> Attempt {
        // We say that we write, then look whether we may; the owner forbids it, then looks whether somebody writes.
        // Between the two steps of both is a sequentially consistent fence, so that at least one sees the other.
        writing.store(mark.0, Ordering::Relaxed);
        W::fence(Ordering::SeqCst);
        let outcome = match self.entry(mark) {
            Some(entry) => {
                let outcome = copy(&entry);
                // If we do not see that it was withdrawn, the owner sees what we wrote: also a copy it makes
                // because we seem to be at it still.
                W::fence(Ordering::SeqCst);
                self.confirm(mark, outcome)
            }
            None => Attempt::NotDirect,
        };
        writing.store(0, Ordering::Release);
        outcome
    }

    fn confirm(&self, mark: Mark, outcome: Attempt) -> Attempt {
        if outcome != Attempt::NotDirect && self.mark.load(Ordering::Relaxed) != mark.0 {
            return Attempt::Refused(AccessError::Unknown);
        }
        outcome
    }

    /// The loads are relaxed because others are not sure to work in memory that is mapped for reading only.
    fn entry(&self, mark: Mark) -> Option<Entry> {
        if self.mark.load(Ordering::Relaxed) != mark.0 {
            return None;
        }
        W::fence(Ordering::Acquire);
        let [low, high] = self.token.each_ref().map(|word| word.load(Ordering::Relaxed));
        let place = self.place.load(Ordering::Relaxed);
        let length = self.length.load(Ordering::Relaxed);
        let flags = self.flags.load(Ordering::Relaxed);
        W::fence(Ordering::Acquire);
        (self.mark.load(Ordering::Relaxed) == mark.0).then(|| Entry {
            token: u128::from(high) << 64 | u128::from(low),
            place: if flags & ARENA == 0 {
                Place::Address(place)
            } else {
                Place::Arena(place)
            },
            length,
            writable: flags & WRITABLE != 0,
        })
    }
}

/// Returns true if a peer may be writing a region that was withdrawn just now. If not, all that it wrote is
/// there.
pub(super) fn is_written<W: Word>(writing: &W, mark: Mark) -> bool {
    writing.load(Ordering::Acquire) == mark.0
}

impl Entry {
    /// Decides about an access as the owner would. Returns where the bytes are, or nothing if there is no such place.
    ///
    /// # Errors
    /// Those of [`RegionTable`](crate::region_table::RegionTable), in the same order.
    pub(super) fn grant(&self, access: &Access, write: bool) -> Result<Option<Place>, AccessError> {
        if !bool::from(self.token.to_le_bytes().ct_eq(&access.token.to_le_bytes())) {
            return Err(AccessError::Unknown);
        }
        if write && !self.writable {
            return Err(AccessError::ReadOnly);
        }
        match access.offset.checked_add(access.length) {
            Some(end) if end <= self.length => {}
            _ => return Err(AccessError::OutOfRange),
        }
        Ok(self.place.after(access.offset))
    }
}

impl Place {
    /// Where one is so many bytes further on, if there are addresses for it.
    pub(super) fn after(self, bytes: u64) -> Option<Self> {
        Some(match self {
            Self::Address(start) => Self::Address(start.checked_add(bytes)?),
            Self::Arena(start) => Self::Arena(start.checked_add(bytes)?),
        })
    }
}

const WRITABLE: u64 = 1;
const ARENA: u64 = 2;

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
