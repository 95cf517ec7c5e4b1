//! An endpoint's own memory, as peers on its host reach it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    board_slot::{Entry, Mark, Place, is_written},
    peer_memory::MemoryOffer,
    peer_process::OwnProbe,
    region_board::OwnBoard,
    writing_word::WritingWord,
};
use crate::{Buffer, RegionHandle, arena::Arena};

/// What an endpoint lets peers on its host reach without its help.
pub(crate) struct OwnMemory {
    arena: Option<Arc<Arena>>,
    board: OwnBoard,
    probe: OwnProbe,
    quarantine: Vec<Quarantined>,
}

/// The writers that may still be writing a region that was withdrawn.
pub(crate) struct InUse {
    mark: Mark,
    writers: Vec<(WritingWord, Option<OwnedFd>)>,
}

/// A peer that may write here, as its connection knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// The peer's word.
    pub(crate) word: &'a WritingWord,
    /// The connection: as long as the peer has its other end open, it may be writing.
    pub(crate) socket: BorrowedFd<'a>,
}

struct Quarantined {
    in_use: InUse,
    _memory: Buffer,
}

impl OwnMemory {
    /// The memory of an endpoint that has exposed nothing. Without an arena, only what the kernel lets peers reach
    /// directly is reached directly.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory, or is older than Linux 5.1.
    pub(crate) fn new(arena: Option<Arc<Arena>>) -> io::Result<Self> {
        Ok(Self {
            arena,
            board: OwnBoard::create()?,
            probe: OwnProbe::create()?,
            quarantine: Vec::new(),
        })
    }

    /// What to tell a peer, to be sent with these descriptors: the board's and, if there is one, the arena's.
    pub(crate) fn offer(&self) -> (MemoryOffer, BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let arena = self.arena.as_deref();
        let offer = MemoryOffer {
            arena_length: arena.map_or(0, |arena| arena.length() as u64),
            probe: self.probe.probe(),
        };
        (offer, self.board.as_fd(), arena.map(Arena::as_fd))
    }

    /// A buffer that peers copy from and to directly, if there is an arena with so much space. What is in it is left
    /// from its last use.
    pub(crate) fn allocate(&self, length: usize) -> Option<Buffer> {
        Some(Buffer::in_arena(self.arena.as_ref()?.allocate(length)?))
    }

    /// Lets peers find a region that was exposed, and the memory of which is `bytes` until it is withdrawn.
    pub(crate) fn publish(&self, handle: &RegionHandle, bytes: &[u8]) {
        let place = match self.arena.as_ref().and_then(|arena| arena.offset_of(bytes)) {
            Some(offset) => Place::Arena(offset),
            None => Place::Address(bytes.as_ptr() as u64),
        };
        let entry = Entry {
            token: handle.token,
            place,
            length: bytes.len() as u64,
            writable: handle.writable,
        };
        self.board.publish(handle.region, &entry);
    }

    /// Lets nobody begin to use a region any more. If it was writable, some of these peers may still be writing it: then
    /// its owner must not get the memory but a copy, and [`quarantine`](Self::quarantine) the memory.
    pub(crate) fn withdraw<'a>(
        &mut self,
        region: u64,
        writable: bool,
        writers: impl Iterator<Item = Writer<'a>>,
    ) -> Option<InUse> {
        self.sweep();
        let mark = Mark::of(region)?;
        if !self.board.withdraw(region) || !writable {
            return None;
        }
        let writers: Vec<_> = writers
            .filter(|writer| is_written(writer.word.word(), mark))
            // Without a descriptor to watch, only the word itself can say that the writer is done.
            .map(|writer| (writer.word.clone(), writer.socket.try_clone_to_owned().ok()))
            .collect();
        (!writers.is_empty()).then_some(InUse { mark, writers })
    }

    /// Keeps memory until nobody writes it any more, and returns a copy of it. What a peer was told to have written is
    /// in the copy.
    pub(crate) fn quarantine(&mut self, in_use: InUse, memory: Buffer) -> Buffer {
        let copy = memory.clone();
        self.quarantine.push(Quarantined {
            in_use,
            _memory: memory,
        });
        copy
    }

    /// Frees what nobody writes any more. Costs nothing while there is nothing.
    pub(crate) fn sweep(&mut self) {
        self.quarantine
            .retain_mut(|quarantined| quarantined.in_use.lasts());
    }

    /// Whether there is memory that somebody may still write.
    pub(crate) fn is_quarantining(&self) -> bool {
        !self.quarantine.is_empty()
    }
}

impl InUse {
    fn lasts(&mut self) -> bool {
        let mark = self.mark;
        (self.writers).retain(|(word, socket)| {
            is_written(word.word(), mark) && !socket.as_ref().is_some_and(|socket| is_closed(socket.as_fd()))
        });
        !self.writers.is_empty()
    }
}

/// Whether the other end of a UNIX socket is closed. A process's sockets are closed after all its threads have
/// stopped, so that it then writes nothing any more.
fn is_closed(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && (polled[0].revents()).intersects(PollFlags::HUP | PollFlags::ERR)
}
