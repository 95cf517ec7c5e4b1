//! Two ends of one process: what one exposes, the other reaches.

use std::{
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;

use super::{
    super::{
        own_memory::{OwnMemory, Writer},
        region_board::OwnBoard,
        transfers::{Ended, Memory, Transfers},
    },
    *,
};
use crate::{AccessError, Buffer, RegionHandle, arena::Arena, region_table::RegionTable};

/// An endpoint's memory and table, and one peer's view of it.
struct Pair {
    table: RegionTable,
    own: OwnMemory,
    peer: PeerMemory,
    writing: WritingWord,
    socket: UnixStream,
    peer_socket: UnixStream,
}

fn pair(arena: bool, process: bool) -> Pair {
    let arena = arena.then(|| Arena::create(64 << 20).unwrap());
    let own = OwnMemory::new(arena).unwrap();
    let (offer, board, arena) = own.offer();
    let offer = postcard::from_bytes(&postcard::to_allocvec(&offer).unwrap()).unwrap();
    let process = process.then(|| std::process::id() as i32);
    let peer = PeerMemory::new(&offer, board, arena, process).unwrap();
    let (_, mapping) = SharedMapping::create("test", 4096).unwrap();
    let (socket, peer_socket) = UnixStream::pair().unwrap();
    Pair {
        table: RegionTable::new([1; 32]),
        own,
        peer,
        writing: WritingWord::new(Arc::new(mapping), 64).unwrap(),
        socket,
        peer_socket,
    }
}

impl Pair {
    fn expose(&mut self, bytes: Bytes) -> RegionHandle {
        let handle = self.table.expose(&"tcp://1".parse().unwrap(), bytes.clone());
        self.own.publish(&handle, &bytes);
        handle
    }

    fn expose_writable(&mut self, buffer: Buffer) -> RegionHandle {
        let (start, length) = (buffer.as_ptr(), buffer.len());
        let handle = (self.table).expose_writable(&"tcp://1".parse().unwrap(), buffer);
        let access = access(&handle, 0, length);
        let memory = self.table.write(&access).unwrap();
        assert_eq!(memory.as_ptr(), start);
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
    assert!(
        pair.own
            .withdraw(readable.region, false, [].into_iter())
            .is_none()
    );
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
        pair.own.withdraw(handle.region, false, [].into_iter());
    }
    let next = pair.expose(Bytes::from_static(b"x"));
    assert_eq!(pair.read(&access(&next, 0, 1)).0, Attempt::Done);
}

/// Memory that a peer is writing is kept from its owner, who gets a copy, until the peer is done or has closed its end
/// of the connection.
#[test]
fn memory_being_written_is_quarantined() {
    for closes in [false, true] {
        let mut pair = pair(true, false);
        let mut memory = pair.allocate(60 << 20);
        memory[..2].copy_from_slice(b"ab");
        let handle = pair.expose_writable(memory);
        // The peer stops in the middle of writing.
        pair.writing.word().store(handle.region + 1, Ordering::SeqCst);
        let writer = Writer {
            word: &pair.writing,
            socket: pair.socket.as_fd(),
        };
        let in_use = (pair.own)
            .withdraw(handle.region, true, [writer].into_iter())
            .unwrap();
        let Some(crate::Withdrawn::Writable(memory)) = pair.table.withdraw(&handle) else {
            unreachable!("it was exposed")
        };
        let copy = pair.own.quarantine(in_use, memory);
        assert_eq!(&copy[..2], b"ab");
        pair.own.sweep();
        assert!(pair.own.is_quarantining());
        assert!(pair.own.allocate(60 << 20).is_none());
        if closes {
            let (other, _) = UnixStream::pair().unwrap();
            drop(std::mem::replace(&mut pair.peer_socket, other));
        } else {
            pair.writing.word().store(0, Ordering::SeqCst);
        }
        pair.own.sweep();
        assert!(!pair.own.is_quarantining());
        assert!(pair.own.allocate(60 << 20).is_some());
    }
}

/// Nobody who writes another region, or none, keeps an owner from its memory.
#[test]
fn memory_nobody_writes_is_given_back() {
    let mut pair = pair(true, false);
    let handle = pair.expose_writable(pair.allocate(10));
    for word in [0, handle.region, handle.region + 2] {
        pair.writing.word().store(word, Ordering::SeqCst);
        let writer = Writer {
            word: &pair.writing,
            socket: pair.socket.as_fd(),
        };
        assert!(
            (pair.own)
                .withdraw(handle.region, true, [writer].into_iter())
                .is_none()
        );
    }
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
    let own = OwnMemory::new(Some(Arena::create(1 << 20).unwrap())).unwrap();
    let (offer, board, arena) = own.offer();
    assert!(PeerMemory::new(&offer, arena.unwrap(), None, None).is_err());
    let longer = MemoryOffer {
        arena_length: (1 << 20) + 1,
        ..offer
    };
    assert!(PeerMemory::new(&longer, board, arena, None).is_err());
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(PeerMemory::new(&offer, board, Some(file.as_fd()), None).is_err());
    assert!(SharedMapping::of(board, 4096, true).is_err());
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
