//! An endpoint's own memory, as peers on its host reach it.

use std::{
    io, mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{Shutdown, shutdown},
};

use super::{
    board_slot::{Entry, Mark, Place, is_written},
    peer_memory::MemoryOffer,
    peer_process::OwnProbe,
    region_board::OwnBoard,
    writing_word::WritingWord,
};
use crate::{Buffer, RegionHandle, arena::Arena, region_table::RegionMemory};

/// The memory that an endpoint lets peers on its host reach without its help.
pub(crate) struct OwnMemory {
    arena: Option<Arc<Arena>>,
    board: OwnBoard,
    probe: Option<OwnProbe>,
    /// Peers to which the connection is closed at this end, but not yet at theirs.
    leaving: Vec<(WritingWord, Arc<OwnedFd>)>,
    quarantine: Vec<Quarantined>,
}

/// The writers that may still be writing a region that was withdrawn.
#[derive(Debug)]
struct InUse {
    mark: Mark,
    writers: Vec<(WritingWord, Option<Arc<OwnedFd>>)>,
}

/// A peer that may write here, as its connection knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// The peer's word.
    pub(crate) word: &'a WritingWord,
    /// The connection: as long as the peer has its other end open, it may be writing.
    pub(crate) socket: &'a OwnedFd,
}

struct Quarantined {
    in_use: InUse,
    memory: Buffer,
}

impl OwnMemory {
    /// More peers that do not close their end are not let in.
    const LEAVING_MAX: usize = 1024;

    /// The memory of an endpoint that has exposed nothing. What is outside the arena is reached only if there is a way
    /// through the kernel, and `by_kernel` allows it.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory, or is older than Linux 5.1.
    pub(crate) fn new(arena: Option<Arc<Arena>>, by_kernel: bool) -> io::Result<Self> {
        Ok(Self {
            arena,
            board: OwnBoard::create()?,
            probe: by_kernel.then(OwnProbe::create).transpose()?,
            leaving: Vec::new(),
            quarantine: Vec::new(),
        })
    }

    /// The offer to a peer, and the descriptors to go with it.
    ///
    /// # Errors
    /// If the system is out of descriptors, or too many peers that were told before have gone without leaving.
    pub(crate) fn offer(&self) -> io::Result<(MemoryOffer, Vec<OwnedFd>)> {
        if self.leaving.len() >= Self::LEAVING_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let arena = self.arena.as_deref();
        let offer = MemoryOffer {
            arena_length: arena.map_or(0, |arena| arena.length() as u64),
            probe: self.probe.as_ref().map(OwnProbe::probe),
        };
        let descriptors = arena.map(Arena::as_fd).into_iter().chain([self.board.as_fd()]);
        let descriptors: io::Result<_> = descriptors
            .map(|descriptor| descriptor.try_clone_to_owned())
            .collect();
        Ok((offer, descriptors?))
    }

    /// A buffer that peers copy from and to directly, if there is an arena with so much space. What is in it is left
    /// from its last use.
    pub(crate) fn allocate(&self, length: usize) -> Option<Buffer> {
        Some(Buffer::in_arena(self.arena.as_ref()?.allocate(length)?))
    }

    /// Lets peers find a region that was exposed, and that stays where it is until it is withdrawn.
    pub(crate) fn publish(&self, handle: &RegionHandle, memory: RegionMemory<'_>) {
        let bytes = memory.bytes;
        let place = match self.arena.as_ref().and_then(|arena| arena.offset_of(bytes)) {
            Some(offset) => Place::Arena(offset),
            None => Place::Address(bytes.as_ptr() as u64),
        };
        let entry = Entry {
            token: handle.token,
            place,
            length: bytes.len() as u64,
            writable: memory.writable,
        };
        self.board.publish(handle.region, &entry);
    }

    /// Lets nobody begin to use a region any more that only its owner writes.
    pub(crate) fn withdraw(&self, region: u64) {
        self.board.withdraw(region);
    }

    /// Lets nobody begin to use a region any more, and returns its memory. If one of these peers may still be
    /// writing it, the returned buffer is a copy, while the memory itself is kept until nobody does. Bytes
    /// that a peer was told to have written are in either.
    pub(crate) fn withdraw_writable<'a>(
        &mut self,
        region: u64,
        memory: Buffer,
        writers: impl Iterator<Item = Writer<'a>>,
    ) -> Buffer {
        self.sweep();
        if !self.board.withdraw(region) {
            return memory;
        }
        let Some(mark) = Mark::of(region) else {
            return memory;
        };
        let leaving = self
            .leaving
            .iter()
            .map(|(word, socket)| (word, Some(Arc::clone(socket))));
        // Without a descriptor to watch, only the word itself can say that the writer is done.
        let connected = writers
            .filter(|writer| is_written(writer.word.word(), mark))
            .map(|writer| (writer.word, writer.socket.try_clone().ok().map(Arc::new)));
        let writers: Vec<_> = (leaving.chain(connected))
            .filter(|(word, _)| is_written(word.word(), mark))
            .map(|(word, socket)| (word.clone(), socket))
            .collect();
        if writers.is_empty() {
            return memory;
        }
        let in_use = InUse { mark, writers };
        let copy = memory.clone();
        self.quarantine.push(Quarantined { in_use, memory });
        copy
    }

    /// Learns that a connection is closed at this end. Until its peer has closed the other, it may write what
    /// is exposed.
    pub(crate) fn handle_closed(&mut self, word: WritingWord, socket: OwnedFd) {
        if !is_closed(socket.as_fd()) {
            // The peer is to see that it has ended, although we keep the descriptor.
            let _ = shutdown(&socket, Shutdown::Write);
            self.leaving.push((word, Arc::new(socket)));
        }
    }

    /// Forgets peers that have closed their end, and frees what nobody writes any more. Costs nothing while there is
    /// nothing.
    pub(crate) fn sweep(&mut self) {
        self.leaving.retain(|(_, socket)| !is_closed(socket.as_fd()));
        self.quarantine
            .retain_mut(|quarantined| quarantined.in_use.lasts());
    }

    /// Returns true if the memory is to be [swept](Self::sweep) from time to time.
    pub(crate) fn is_swept(&self) -> bool {
        !self.quarantine.is_empty() || !self.leaving.is_empty()
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        self.sweep();
        for quarantined in self.quarantine.drain(..) {
            // Nobody will see when its writer is done: that memory can never be used for anything else.
            mem::forget(quarantined.memory);
        }
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

/// Returns true if the other end of a UNIX socket is closed. A process's sockets are closed after all its
/// threads have stopped, so that it then writes nothing any more.
fn is_closed(socket: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && (polled[0].revents()).intersects(PollFlags::HUP | PollFlags::ERR)
}
