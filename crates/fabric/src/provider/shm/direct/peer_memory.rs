//! A peer's memory, as far as it can be reached without the peer's help.

use std::{
    fmt, io,
    num::NonZeroU32,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::AtomicU64,
};

use super::{
    board_slot::{Attempt, Entry, Mark, Place},
    copy::{copy_from, copy_to},
    peer_process::{PeerProcess, Probe},
    region_board::PeerBoard,
    writing_word::WritingWord,
};
use crate::{memfd::SharedMapping, region_table::Access};

#[cfg(feature = "fuzzing")]
mod fuzzing;

#[cfg(feature = "fuzzing")]
pub(crate) use self::fuzzing::fuzz_board;

/// An endpoint's description of its memory for a peer on the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryOffer {
    /// How long the arena is, in bytes.
    pub(crate) arena_length: u64,
    /// By which the peer finds out whether the kernel lets it reach memory outside the arena; without one it is not
    /// to try.
    pub(crate) probe: Option<Probe>,
}

impl MemoryOffer {
    /// How many descriptors go with it: that of the arena, if there is one, and then that of the board.
    pub(crate) fn descriptors(&self) -> usize {
        1 + usize::from(self.arena_length > 0)
    }
}

/// The memory of a peer: what it published, and the ways to get there.
///
/// Nothing that the peer says is believed further than to the bounds of what it gave: the worst that it can bring about
/// is that we copy wrong bytes of its own.
pub(crate) struct PeerMemory {
    board: PeerBoard,
    arena: Option<PeerArena>,
    process: Option<PeerProcess>,
}

struct PeerArena {
    mapping: SharedMapping,
    writable: bool,
}

/// How much of an access to a peer's memory is done at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// The whole access, as it is checked for each piece.
    pub(crate) access: &'a Access,
    /// How much of it was done before, in bytes; what is done now is as long as the other side of the copy.
    pub(crate) done: u64,
}

impl fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerMemory").finish_non_exhaustive()
    }
}

impl PeerMemory {
    /// Takes up a peer's offer, with the descriptors that came with it. `process` is the peer's, as this process sees
    /// it.
    ///
    /// # Errors
    /// If the descriptors are not what they should be, or cannot be mapped.
    pub(crate) fn new(
        offer: &MemoryOffer,
        descriptors: &[OwnedFd],
        process: Option<NonZeroU32>,
    ) -> io::Result<Self> {
        let (arena, board) = match descriptors {
            [board] if offer.arena_length == 0 => (None, board),
            [arena, board] if offer.arena_length > 0 => (Some(arena), board),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let length = usize::try_from(offer.arena_length).map_err(io::Error::other)?;
        let arena = match arena {
            Some(descriptor) => Some(PeerArena {
                mapping: SharedMapping::of(descriptor.as_fd(), length, false)?,
                writable: false,
            }),
            None => None,
        };
        Ok(Self {
            board: PeerBoard::of(board.as_fd())?,
            arena,
            process: process
                .zip(offer.probe)
                .and_then(|(process, probe)| PeerProcess::reach(process, probe)),
        })
    }

    /// Copies a piece of a region into `into`, which is as long as the piece.
    ///
    /// # Panics
    /// If the piece is not inside its access.
    pub(crate) fn read(&self, piece: Piece<'_>, into: &mut [u8]) -> Attempt {
        piece.assert_inside(into.len());
        let Some(mark) = Mark::of(piece.access.region) else {
            return Attempt::NotDirect;
        };
        let slot = self.board.slot(piece.access.region);
        slot.read(mark, |entry| {
            granted(entry, piece, false, |place| match place {
                Place::Arena(offset) => (self.arena.as_ref())
                    .is_some_and(|arena| copy_from(&arena.mapping, offset, into, piece.is_streamed())),
                Place::Address(address) => {
                    (self.process.as_ref()).is_some_and(|process| process.read(address, into).is_ok())
                }
            })
        })
    }

    /// Copies `from`, which is as long as the piece, into a piece of a region. `writing` is our word in the connection
    /// with the peer.
    ///
    /// # Panics
    /// If the piece is not inside its access.
    pub(crate) fn write(&mut self, piece: Piece<'_>, from: &[u8], writing: &WritingWord) -> Attempt {
        self.write_as(piece, from, writing.word())
    }

    fn write_as(&mut self, piece: Piece<'_>, from: &[u8], writing: &AtomicU64) -> Attempt {
        piece.assert_inside(from.len());
        let Some(mark) = Mark::of(piece.access.region) else {
            return Attempt::NotDirect;
        };
        let Self {
            board,
            arena,
            process,
        } = self;
        let slot = board.slot(piece.access.region);
        slot.write(mark, writing, |entry| {
            granted(entry, piece, true, |place| match place {
                Place::Arena(offset) => (arena.as_mut().and_then(PeerArena::for_writing))
                    .is_some_and(|mapping| copy_to(mapping, offset, from, piece.is_streamed())),
                Place::Address(address) => {
                    (process.as_ref()).is_some_and(|process| process.write(address, from).is_ok())
                }
            })
        })
    }
}

impl PeerArena {
    /// The mapping for writing. It becomes writable only with the first write, so that memory which we have
    /// no business to write is not written by mistake either.
    fn for_writing(&mut self) -> Option<&SharedMapping> {
        if !self.writable {
            self.mapping.allow_writing().ok()?;
            self.writable = true;
        }
        Some(&self.mapping)
    }
}

impl Piece<'_> {
    fn assert_inside(&self, length: usize) {
        let end = self.done.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.access.length),
            "a piece exceeds its access"
        );
    }

    fn is_streamed(&self) -> bool {
        self.access.length >= STREAMED_FROM
    }
}

/// `copy` says whether it could reach the place. If not, the peer itself has to answer: it knows whether there is such
/// memory.
fn granted(entry: &Entry, piece: Piece<'_>, write: bool, copy: impl FnOnce(Place) -> bool) -> Attempt {
    match entry.grant(piece.access, write) {
        Ok(place) => match place.and_then(|place| place.after(piece.done)) {
            Some(place) if copy(place) => Attempt::Done,
            _ => Attempt::NotDirect,
        },
        Err(error) => Attempt::Refused(error),
    }
}

/// From this many bytes on, source and destination do not stay in the caches anyway.
const STREAMED_FROM: u64 = 12 << 20;

#[cfg(test)]
mod tests;
