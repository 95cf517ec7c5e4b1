//! Two ends of one process: what one exposes, the other reaches.

use std::{
    io::Read,
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;

use super::{
    super::{
        own_memory::{OwnMemory, Writer},
        region_board::OwnBoard,
        transfers::{Ended, Transfers},
    },
    *,
};
use crate::{
    AccessError, Buffer, RegionHandle, Withdrawn, arena::Arena, provider::Memory, region_table::RegionTable,
};

/// An endpoint's memory and table, and one peer's view of it.
struct Pair {
    table: RegionTable,
    own: OwnMemory,
    peer: PeerMemory,
    writing: WritingWord,
    socket: OwnedFd,
    peer_socket: UnixStream,
}

fn pair(arena: bool, process: bool) -> Pair {
    let arena = arena.then(|| Arena::create(64 << 20).unwrap());
    let own = OwnMemory::new(arena, process).unwrap();
    let (offer, descriptors) = own.offer().unwrap();
    let peer = PeerMemory::new(&offer, &descriptors, std::process::id().try_into().ok()).unwrap();
    let (_, mapping) = SharedMapping::create("test", 4096).unwrap();
    let (socket, peer_socket) = UnixStream::pair().unwrap();
    Pair {
        table: RegionTable::new([1; 32]),
        own,
        peer,
        writing: WritingWord::new(Arc::new(mapping), 64).unwrap(),
        socket: socket.into(),
        peer_socket,
    }
}

impl Pair {
    fn expose(&mut self, bytes: Bytes) -> RegionHandle {
        let handle = self.table.expose(&"tcp://1".parse().unwrap(), bytes.clone());
        self.own
            .publish(&handle, self.table.memory(handle.region).unwrap());
        handle
    }

    fn expose_writable(&mut self, buffer: Buffer) -> RegionHandle {
        let (start, length) = (buffer.as_ptr(), buffer.len());
        let handle = (self.table).expose_writable(&"tcp://1".parse().unwrap(), buffer);
        let memory = self.table.memory(handle.region).unwrap();
        assert_eq!((memory.bytes.as_ptr(), memory.bytes.len()), (start, length));
        self.own.publish(&handle, memory);
        handle
    }

    fn read(&self, access: &Access) -> (Attempt, Vec<u8>) {
        let mut into = vec![0; usize::try_from(access.length).unwrap()];
        let outcome = self.peer.read(Piece { access, done: 0 }, &mut into);
        (outcome, into)
    }

    fn write(&mut self, access: &Access, from: &[u8]) -> Attempt {
        (self.peer).write(Piece { access, done: 0 }, from, &self.writing)
    }

    /// Withdraws a writable region; returns the buffer that its owner gets.
    fn withdraw(&mut self, handle: &RegionHandle) -> Buffer {
        let Some(Withdrawn::Writable(memory)) = self.table.withdraw(handle) else {
            unreachable!("it was exposed for writing")
        };
        let writer = Writer {
            word: &self.writing,
            socket: &self.socket,
        };
        (self.own).withdraw_writable(handle.region, memory, [writer].into_iter())
    }

    fn allocate(&self, length: usize) -> Buffer {
        self.own.allocate(length).unwrap()
    }
}

fn access(handle: &RegionHandle, offset: u64, length: usize) -> Access {
    Access {
        region: handle.region,
        token: handle.token,
        offset,
        length: length as u64,
    }
}

/// Memory in the arena is read and written without the kernel; memory elsewhere with it, or not directly.
#[test]
fn reaches_what_can_be_reached() {
    for (in_arena, process) in [(true, false), (false, true), (false, false)] {
        let mut pair = pair(true, process);
        let mut memory = if in_arena {
            pair.allocate(1000)
        } else {
            Buffer::zeroed(1000)
        };
        memory.fill(7);
        let writable = pair.expose_writable(memory);
        let readable = if in_arena {
            {
                let mut buffer = pair.allocate(10);
                buffer.copy_from_slice(b"0123456789");
                Bytes::from(buffer)
            }
        } else {
            Bytes::copy_from_slice(b"0123456789")
        };
        let readable = pair.expose(readable.slice(2..));
        let written = pair.write(&access(&writable, 10, 3), b"abc");
        let (read, bytes) = pair.read(&access(&readable, 1, 4));
        if in_arena || process {
            assert_eq!((written, read), (Attempt::Done, Attempt::Done));
            assert_eq!(bytes, b"3456");
            assert_eq!(pair.read(&access(&writable, 9, 5)).1, b"\x07abc\x07");
        } else {
            assert_eq!((written, read), (Attempt::NotDirect, Attempt::NotDirect));
        }
    }
}

/// Whatever the owner would refuse is refused, and nothing is copied.
#[test]
fn refuses_what_the_owner_would() {
    let mut pair = pair(true, true);
    let writable = pair.expose_writable(pair.allocate(100));
    let readable = pair.expose(Bytes::from_static(b"fixed"));
    let forged = RegionHandle {
        token: writable.token ^ 1,
        ..writable.clone()
    };
    for (access, error) in [
        (access(&forged, 0, 1), AccessError::Unknown),
        (access(&readable, 0, 1), AccessError::ReadOnly),
        (access(&writable, 100, 1), AccessError::OutOfRange),
        (access(&writable, u64::MAX, 1), AccessError::OutOfRange),
    ] {
        assert_eq!(pair.write(&access, &[1]), Attempt::Refused(error));
    }
    assert_eq!(pair.read(&access(&readable, 5, 0)).0, Attempt::Done);
    let (outcome, bytes) = pair.read(&access(&readable, 3, 3));
    assert_eq!(
        (outcome, &bytes[..]),
        (Attempt::Refused(AccessError::OutOfRange), &[0; 3][..])
    );
    pair.own.withdraw(readable.region);
    assert_eq!(pair.read(&access(&readable, 0, 1)).0, Attempt::NotDirect);
}

/// More regions than the board has room for are exposed all the same: the others are reached by messages.
#[test]
fn boards_may_be_full() {
    let mut pair = pair(false, true);
    let handles: Vec<_> = (0..5000).map(|_| pair.expose(Bytes::from_static(b"x"))).collect();
    assert_eq!(pair.read(&access(&handles[0], 0, 1)).0, Attempt::Done);
    assert_eq!(pair.read(&access(&handles[4999], 0, 1)).0, Attempt::NotDirect);
    for handle in &handles {
        pair.own.withdraw(handle.region);
    }
    let next = pair.expose(Bytes::from_static(b"x"));
    assert_eq!(pair.read(&access(&next, 0, 1)).0, Attempt::Done);
}

/// Memory that a peer is writing is kept from its owner, who gets a copy, until the peer is done or has closed its end
/// of the connection; also if this end was closed before.
#[test]
fn memory_being_written_is_quarantined() {
    for (leaves_first, closes) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut pair = pair(true, false);
        let mut memory = pair.allocate(60 << 20);
        memory[..2].copy_from_slice(b"ab");
        let handle = pair.expose_writable(memory);
        // The peer stops in the middle of writing.
        pair.writing.word().store(handle.region + 1, Ordering::SeqCst);
        if leaves_first {
            let other = UnixStream::pair().unwrap().0;
            let left = std::mem::replace(&mut pair.socket, other.into());
            pair.own.handle_closed(pair.writing.clone(), left);
            let mut read = [0];
            assert_eq!((&pair.peer_socket).read(&mut read).unwrap(), 0);
        }
        assert_eq!(&pair.withdraw(&handle)[..2], b"ab");
        pair.own.sweep();
        assert!(pair.own.is_swept());
        assert!(pair.own.allocate(60 << 20).is_none());
        if closes {
            pair.peer_socket = UnixStream::pair().unwrap().0;
        } else {
            pair.writing.word().store(0, Ordering::SeqCst);
        }
        pair.own.sweep();
        assert_eq!(pair.own.is_swept(), leaves_first && !closes);
        assert!(pair.own.allocate(60 << 20).is_some());
    }
}

/// Nobody who writes another region, or none, keeps an owner from its memory; nor does who has left.
#[test]
fn memory_nobody_writes_is_given_back() {
    let mut pair = pair(true, false);
    for other in [-1, 0, 2] {
        let memory = pair.allocate(10);
        let start = memory.as_ptr();
        let handle = pair.expose_writable(memory);
        let word = handle.region.wrapping_add_signed(other);
        pair.writing.word().store(word, Ordering::SeqCst);
        assert_eq!(pair.withdraw(&handle).as_ptr(), start);
    }
    let (gone, _) = UnixStream::pair().unwrap();
    pair.own.handle_closed(pair.writing.clone(), gone.into());
    assert!(!pair.own.is_swept());
}

/// Where memory was being written when its endpoint went, nothing else will ever be.
#[test]
fn memory_being_written_outlives_its_endpoint() {
    let arena = Arena::create(64 << 20).unwrap();
    let mut own = OwnMemory::new(Some(arena.clone()), false).unwrap();
    let mut pair = pair(false, false);
    std::mem::swap(&mut pair.own, &mut own);
    let handle = pair.expose_writable(pair.allocate(60 << 20));
    pair.writing.word().store(handle.region + 1, Ordering::SeqCst);
    drop(pair.withdraw(&handle));
    drop(pair);
    assert!(arena.allocate(60 << 20).is_none());
}

/// Long transfers are done in pieces, in turns, and end as one; a refusal of the whole comes before the first byte.
#[test]
fn long_transfers_take_turns() {
    let mut pair = pair(true, true);
    let length = 9 << 20;
    let content: Vec<u8> = (0..length).map(|i| (i * 7 / 3) as u8).collect();
    let readable = pair.expose(Bytes::from(content.clone()));
    let writable = pair.expose_writable(pair.allocate(length));
    let mut transfers = Transfers::new();
    transfers.push(
        1,
        (),
        access(&readable, 0, length),
        Memory::Into(Buffer::zeroed(length)),
    );
    transfers.push(
        2,
        (),
        access(&writable, 0, length),
        Memory::From(content.clone().into()),
    );
    transfers.push(
        3,
        (),
        access(&writable, 1, length),
        Memory::From(vec![9; length].into()),
    );
    transfers.push(4, (), access(&readable, 0, 1), Memory::Into(Buffer::zeroed(1)));
    assert!(transfers.cancel(4) && !transfers.cancel(4));
    let mut ends = Vec::new();
    let mut steps = 0;
    while let Some((copied, ended)) = transfers.advance(|()| Some((&mut pair.peer, &pair.writing))) {
        steps += 1;
        assert!(copied <= 4 << 20);
        ends.extend(ended);
    }
    assert_eq!(steps, 7);
    assert!(matches!(&ends[0], Ended::Refused(transfer, AccessError::OutOfRange) if transfer.operation == 3));
    assert!(matches!(&ends[1], Ended::Done(transfer)
        if transfer.operation == 1 && matches!(&transfer.memory, Memory::Into(buffer) if **buffer == content[..])));
    assert!(matches!(&ends[2], Ended::Done(transfer) if transfer.operation == 2));
    assert!(pair.read(&access(&writable, 0, length)).1 == content);
    transfers.push(5, (), access(&readable, 0, 1), Memory::Into(Buffer::zeroed(1)));
    assert!(matches!(
        transfers.advance(|()| None),
        Some((0, Some(Ended::NotDirect(_))))
    ));
    transfers.push(6, (), access(&readable, 0, 1), Memory::Into(Buffer::zeroed(1)));
    assert_eq!(transfers.take(()).len(), 1);
    assert!(transfers.is_empty());
}

/// A peer that sends the wrong descriptors, or says of them what is not so, is found out before anything is read.
#[test]
fn wrong_descriptors_are_refused() {
    let own = OwnMemory::new(Some(Arena::create(1 << 20).unwrap()), true).unwrap();
    let (offer, descriptors) = own.offer().unwrap();
    let [arena, board] = &descriptors[..] else {
        unreachable!("there is an arena")
    };
    let again = |descriptor: &OwnedFd| descriptor.try_clone().unwrap();
    assert!(PeerMemory::new(&offer, &descriptors, None).is_ok());
    assert!(PeerMemory::new(&offer, &[again(board), again(arena)], None).is_err());
    assert!(PeerMemory::new(&offer, &descriptors[1..], None).is_err());
    let longer = MemoryOffer {
        arena_length: (1 << 20) + 1,
        ..offer
    };
    assert!(PeerMemory::new(&longer, &descriptors, None).is_err());
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(PeerMemory::new(&offer, &[file.into(), again(board)], None).is_err());
    assert!(SharedMapping::of(board.as_fd(), 4096, true).is_err());
}

/// A board with places outside of the arena leads nowhere.
#[test]
fn lies_on_the_board_lead_nowhere() {
    let board = OwnBoard::create().unwrap();
    let (_, arena) = SharedMapping::create("test", 4096).unwrap();
    let mut peer = PeerMemory {
        board: PeerBoard::of(board.as_fd()).unwrap(),
        arena: Some(PeerArena {
            mapping: arena,
            writable: true,
        }),
        process: None,
    };
    let (_, mapping) = SharedMapping::create("test", 4096).unwrap();
    let writing = WritingWord::new(Arc::new(mapping), 0).unwrap();
    for (region, start) in [4090, u64::MAX - 5, 1 << 40].into_iter().enumerate() {
        let region = region as u64;
        board.publish(
            region,
            &Entry {
                token: 1,
                place: Place::Arena(start),
                length: u64::MAX,
                writable: true,
            },
        );
        let access = Access {
            region,
            token: 1,
            offset: 0,
            length: 10,
        };
        let piece = Piece {
            access: &access,
            done: 0,
        };
        assert_eq!(peer.read(piece, &mut [0; 10]), Attempt::NotDirect);
        assert_eq!(peer.write(piece, &[0; 10], &writing), Attempt::NotDirect);
    }
    assert_eq!(writing.word().load(Ordering::Relaxed), 0);
}
