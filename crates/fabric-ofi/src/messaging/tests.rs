use std::collections::VecDeque;

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use ropewalk_fabric::{
    AccessError, Body, Buffer, Identity, JobKey, OperationId, RegionHandle, Role,
    provider::{Access, Memory, MessageKind, OutgoingMessage, Transferred},
};
use ropewalk_names::{Incarnation, JobId, Rank};

use super::*;

/// Two endpoints and the messages under way between them.
struct Pair {
    sides: [Side; 2],
    message_size: usize,
}

struct Side {
    association: Association,
    address: Address,
    /// The messages on their way to it.
    inbox: VecDeque<Vec<u8>>,
    arrived: Arrived,
}

/// The contents of frames that came.
struct Arrived {
    regions: RegionTable,
    happenings: Vec<Happening>,
}

#[derive(Debug)]
enum Happening {
    Message { tag: u64, body: Body },
    Got { id: u64, into: Buffer },
    Put { id: u64 },
    Refused { id: u64, error: AccessError },
}

impl Receiver for Arrived {
    fn regions(&mut self) -> &mut RegionTable {
        &mut self.regions
    }

    fn handle_message(&mut self, _: MessageKind, tag: u64, body: Body) -> Result<(), FrameError> {
        self.happenings.push(Happening::Message { tag, body });
        Ok(())
    }

    fn handle_transferred(&mut self, operation: OperationId, result: Result<Transferred, AccessError>) {
        let id = operation.tag();
        self.happenings.push(match result {
            Ok(Transferred::Got(into)) => Happening::Got { id, into },
            Ok(Transferred::Put) => Happening::Put { id },
            Err(error) => Happening::Refused { id, error },
        });
    }
}

impl Side {
    fn send(&mut self, tag: u64, body: &[u8]) {
        let body = Body::from(body.to_vec());
        let message = OutgoingMessage::new(MessageKind::Unexpected, tag, &body);
        self.association.frames.send(message);
    }

    fn transfer(&mut self, id: u64, access: &Access, memory: Memory) {
        let operation = OperationId::from_tag(id);
        self.association.frames.transfer(operation, access, memory, false);
    }
}

fn introduction(rank: u32) -> Introduction {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(rank),
        incarnation: Incarnation(0),
    };
    let key = JobKey::from_bytes([2; 32]).key_of(identity);
    Introduction::new(JobId([1; 16]), key, address(rank), u64::from(rank))
}

fn address(rank: u32) -> Address {
    format!("ofi://sockets/{rank}").parse().unwrap()
}

impl Pair {
    /// Two sides of which the first has called the second; nothing was delivered yet.
    fn new(message_size: usize, limits: &Limits) -> Self {
        let called = address(1);
        let opening = Opening {
            association: 70,
            name: b"zero",
        };
        let origin = Association::call(introduction(0), called, &opening, [7; 32], limits);
        let target = Association::answer(introduction(1), 70, 71, [8; 32], limits);
        let side = |association, rank: u32| Side {
            association,
            address: address(rank),
            inbox: VecDeque::new(),
            arrived: Arrived {
                regions: RegionTable::new([rank as u8; 32]),
                happenings: Vec::new(),
            },
        };
        Self {
            sides: [side(origin, 0), side(target, 1)],
            message_size,
        }
    }

    fn opened(message_size: usize) -> Self {
        let mut pair = Self::new(message_size, &Limits::default());
        pair.settle().unwrap();
        assert!(pair.sides.iter().all(|side| side.association.is_open()));
        pair
    }

    /// One side sends one message, if it has any.
    fn send(&mut self, from: usize) -> bool {
        let mut message = vec![0; self.message_size];
        let side = &mut self.sides[from];
        let sendable = side.association.is_sendable();
        let length = side.association.fill(&mut message, &side.arrived.regions);
        assert_eq!(length.is_some(), sendable);
        let Some(length) = length else {
            return false;
        };
        message.truncate(length);
        self.sides[1 - from].inbox.push_back(message);
        true
    }

    /// One side receives one message, if there is any.
    fn receive(&mut self, to: usize) -> Result<bool, PeerDeath> {
        self.receive_passing(to, 0)
    }

    /// One side receives one message, which may have passed some that were sent before it.
    fn receive_passing(&mut self, to: usize, passed: usize) -> Result<bool, PeerDeath> {
        let side = &mut self.sides[to];
        let last = side.inbox.len().saturating_sub(1);
        let Some(message) = side.inbox.remove(passed.min(last)) else {
            return Ok(false);
        };
        let (envelope, content) = Envelope::decode(&message).map_err(PeerDeath::Protocol)?;
        let handled = side.association.handle(&envelope, content, &mut side.arrived)?;
        if let Handled::Proven(_) = handled {
            side.association.open(&mut side.arrived)?;
        }
        Ok(true)
    }

    /// Delivers until nobody has anything to say.
    fn settle(&mut self) -> Result<(), PeerDeath> {
        loop {
            let mut idle = true;
            for side in 0..2 {
                while self.send(side) {
                    idle = false;
                }
                while self.receive(1 - side)? {
                    idle = false;
                }
            }
            if idle {
                return Ok(());
            }
        }
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

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8 ^ seed).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Receive {
        side: usize,
        passed: usize,
    },
    Message {
        side: usize,
        length: usize,
    },
    Get {
        side: usize,
        offset: usize,
        length: usize,
    },
    Put {
        side: usize,
        length: usize,
    },
    Cancel {
        side: usize,
        id: u64,
    },
}

fn steps() -> impl Strategy<Value = Step> {
    let side = 0..2usize;
    prop_oneof![
        4 => side.clone().prop_map(Step::Send),
        4 => (side.clone(), 0..4usize).prop_map(|(side, passed)| Step::Receive { side, passed }),
        2 => (side.clone(), 0..3000usize).prop_map(|(side, length)| Step::Message { side, length }),
        1 => (side.clone(), 0..1000usize, 0..9000usize)
            .prop_map(|(side, offset, length)| Step::Get { side, offset, length }),
        1 => (side.clone(), 0..9000usize).prop_map(|(side, length)| Step::Put { side, length }),
        1 => (side, 0..20u64).prop_map(|(side, id)| Step::Cancel { side, id }),
    ]
}

proptest! {
    /// Whatever is sent, read, written and cancelled from both sides, however it is cut into messages that
    /// pass each other: messages come in order, and each operation that is not cancelled ends once, with the right
    /// bytes.
    #[test]
    fn everything_arrives(steps in vec(steps(), 1..120), message_size in 400usize..3000) {
        const LENGTH: usize = 10_000;
        let mut pair = Pair::new(message_size, &Limits::default());
        let handles: [_; 2] = std::array::from_fn(|rank| {
            let side = &mut pair.sides[rank];
            let memory = Bytes::from(pattern(LENGTH, rank as u8));
            (
                side.arrived.regions.expose(&side.address, memory),
                side.arrived.regions.expose_writable(&side.address, Buffer::zeroed(LENGTH)),
            )
        });
        let mut sent: [Vec<Vec<u8>>; 2] = Default::default();
        // Length and offset by number; a put has no offset.
        let mut open: [BTreeMap<u64, (usize, Option<usize>)>; 2] = Default::default();
        let mut next = 0;
        let mut cancelled = [Vec::new(), Vec::new()];
        for step in steps {
            match step {
                Step::Send(side) => drop(pair.send(side)),
                Step::Receive { side, passed } => drop(pair.receive_passing(side, passed).unwrap()),
                Step::Message { side, length } => {
                    let body = pattern(length, sent[side].len() as u8);
                    pair.sides[side].send(sent[side].len() as u64, &body);
                    sent[side].push(body);
                }
                Step::Get { side, offset, length } => {
                    let access = access(&handles[1 - side].0, offset as u64, length);
                    pair.sides[side].transfer(next, &access, Memory::Into(Buffer::zeroed(length)));
                    open[side].insert(next, (length, Some(offset)));
                    next += 1;
                }
                Step::Put { side, length } => {
                    let access = access(&handles[1 - side].1, 0, length);
                    let from = Bytes::from(pattern(length, 9));
                    pair.sides[side].transfer(next, &access, Memory::From(from));
                    open[side].insert(next, (length, None));
                    next += 1;
                }
                Step::Cancel { side, id } => {
                    if open[side].contains_key(&id) {
                        pair.sides[side].association.frames.cancel(OperationId::from_tag(id));
                        cancelled[side].push(id);
                    }
                }
            }
        }
        pair.settle().unwrap();
        for rank in 0..2 {
            let side = &mut pair.sides[rank];
            prop_assert!(!side.association.frames.has_unsent());
            let mut came = Vec::new();
            let mut written = 0;
            for happening in mem::take(&mut side.arrived.happenings) {
                match happening {
                    Happening::Message { tag, body } => {
                        prop_assert_eq!(tag, came.len() as u64);
                        came.push(body.to_vec());
                    }
                    Happening::Got { id, into } => {
                        let (length, offset) = open[rank].remove(&id).unwrap();
                        let offset = offset.unwrap();
                        let memory = pattern(LENGTH, 1 - rank as u8);
                        prop_assert_eq!(&into[..], &memory[offset..offset + length]);
                    }
                    Happening::Put { id } => {
                        let (length, offset) = open[rank].remove(&id).unwrap();
                        prop_assert!(offset.is_none());
                        written = written.max(length);
                    }
                    Happening::Refused { id, error } => prop_assert!(false, "{id}: {error}"),
                }
            }
            prop_assert_eq!(&came, &sent[1 - rank]);
            // What did not end was cancelled.
            prop_assert!(open[rank].keys().all(|id| cancelled[rank].contains(id)));
            let memory = &mut pair.sides[1 - rank].arrived.regions;
            let written = memory.read(&access(&handles[1 - rank].1, 0, written)).unwrap();
            prop_assert_eq!(&written[..], &pattern(written.len(), 9));
        }
    }

    /// A changed bit in a message is an error or goes unnoticed in bulk data or a cancelled stream; it never
    /// makes another message of it, and never panics.
    #[test]
    fn changed_bits_make_no_messages(at: proptest::sample::Index, bit in 0..8u32, later: bool) {
        let mut pair = if later { Pair::opened(2000) } else { Pair::new(2000, &Limits::default()) };
        let body = pattern(700, 3);
        pair.sides[0].send(5, &body);
        pair.send(0);
        let message = pair.sides[1].inbox.back_mut().unwrap();
        let at = at.index(message.len());
        message[at] ^= 1u8 << bit;
        let _ = pair.settle();
        for happening in &pair.sides[1].arrived.happenings {
            // Only the name in the opening is not under a checksum, and of no concern here.
            let Happening::Message { tag, body: came } = happening else {
                panic!("{happening:?}");
            };
            prop_assert!(*tag == 5 && **came == *body);
        }
    }

    /// Garbage from a peer is an error or nothing, before and after the handshake.
    #[test]
    fn garbage_is_harmless(content in vec(any::<u8>(), 0..2000), kind in 1..4u8, open: bool) {
        let mut pair = if open { Pair::opened(2000) } else { Pair::new(2000, &Limits::default()) };
        let Side { association, arrived, .. } = &mut pair.sides[1];
        let kind = [EnvelopeKind::Data, EnvelopeKind::Acknowledgement, EnvelopeKind::Close][usize::from(kind) - 1];
        let envelope = Envelope {
            association: 71,
            sequence: association.received,
            acknowledged: association.acknowledged,
            kind,
        };
        if let Ok(handled) = association.handle(&envelope, &content, arrived) {
            prop_assert_eq!(handled, Handled::Frames);
            prop_assert!(arrived.happenings.is_empty());
        }
    }

    /// An envelope survives the wire, and a shorter one or one with a changed bit is refused.
    #[test]
    fn envelopes_survive_the_wire(
        association: u64,
        sequence: u32,
        acknowledged: u32,
        kind in 0..3usize,
        length in 0..ENVELOPE_SIZE,
        bit in 0..8 * ENVELOPE_SIZE,
    ) {
        let kind = [EnvelopeKind::Data, EnvelopeKind::Acknowledgement, EnvelopeKind::Close][kind];
        let envelope = Envelope { association, sequence, acknowledged, kind };
        let mut bytes = envelope.encode();
        prop_assert_eq!(Envelope::decode(&bytes), Ok((envelope, &[][..])));
        prop_assert_eq!(Envelope::decode(&bytes[..length]), Err(FrameError::Length { length }));
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Envelope::decode(&bytes).is_err());
    }

    /// An opening survives the wire, with what comes after it; one cut short is refused.
    #[test]
    fn openings_survive_the_wire(
        association in 1u64..,
        name in vec(any::<u8>(), 0..=Opening::NAME_SIZE_MAX),
        rest in vec(any::<u8>(), 0..20),
    ) {
        let opening = Opening { association, name: &name };
        let encoded = opening.encode();
        let whole = [&encoded[..], &rest].concat();
        prop_assert_eq!(Opening::decode(&whole), Ok((opening, &rest[..])));
        prop_assert!(Opening::decode(&encoded[..encoded.len() - 1]).is_err());
    }
}

/// A sender stops after a window of messages, and goes on as the receiver gets to them.
#[test]
fn the_window_bounds_what_is_under_way() {
    let mut pair = Pair::opened(1000);
    let body = Bytes::from(pattern(100_000, 1));
    pair.sides[0].send(0, &body);
    let mut under_way = 0;
    while pair.send(0) {
        under_way += 1;
    }
    assert!((1..=WINDOW).contains(&under_way));
    assert!(pair.sides[0].association.frames.has_unsent());
    pair.settle().unwrap();
    let [Happening::Message { body: came, .. }] = &pair.sides[1].arrived.happenings[..] else {
        panic!("{:?}", pair.sides[1].arrived.happenings);
    };
    assert_eq!(*came, body);
}

/// A peer that does not wait for acknowledgements is cut off, so that it cannot fill our memory.
#[test]
fn senders_beyond_the_window_are_cut_off() {
    let mut pair = Pair::opened(1000);
    pair.sides[0].send(0, &[]);
    let mut frame = [0; 64];
    let Side {
        association, arrived, ..
    } = &mut pair.sides[0];
    let length = association.frames.fill(&mut frame, &arrived.regions);
    let Side {
        association, arrived, ..
    } = &mut pair.sides[1];
    let mut taken = 0;
    let cause = loop {
        let envelope = Envelope {
            association: 71,
            sequence: association.received,
            acknowledged: association.acknowledged,
            kind: EnvelopeKind::Data,
        };
        match association.handle(&envelope, &frame[..length], arrived) {
            Ok(_) => taken += 1,
            Err(cause) => break cause,
        }
    };
    assert!(matches!(cause, PeerDeath::Protocol(FrameError::Unsolicited)));
    assert!(taken <= WINDOW);
}

/// A doubled message is found, and nothing is told of what comes after a lost one.
#[test]
fn lost_and_doubled_messages_are_found() {
    let sent = || {
        let mut pair = Pair::opened(1000);
        pair.sides[0].send(0, &pattern(3000, 1));
        while pair.send(0) {}
        pair
    };
    let mut doubled = sent();
    let first = doubled.sides[1].inbox[0].clone();
    doubled.sides[1].inbox.push_back(first);
    assert!(matches!(
        doubled.settle(),
        Err(PeerDeath::Protocol(FrameError::Unsolicited))
    ));

    let mut lost = sent();
    lost.sides[1].inbox.pop_front();
    lost.settle().unwrap();
    assert!(lost.sides[1].arrived.happenings.is_empty());
}

/// A message that waits for one which the network has lost is no sign of life: otherwise questions for a sign
/// of life, which wait themselves, would keep a broken association alive for ever.
#[test]
fn behind_a_lost_message_nothing_is_heard() {
    let mut pair = Pair::opened(1000);
    let heard = pair.sides[1].association.activity().heard;
    pair.sides[0].send(0, &[]);
    pair.settle().unwrap();
    let before = pair.sides[1].association.activity().heard;
    assert!(before > heard);
    pair.sides[0].send(0, &[]);
    assert!(pair.send(0));
    pair.sides[1].inbox.clear();
    for _ in 0..5 {
        pair.sides[0].send(0, &[]);
        pair.settle().unwrap();
    }
    assert_eq!(pair.sides[1].association.activity().heard, before);
}

/// A withdrawn region ends a get and a put that are in the middle, with the reason.
#[test]
fn withdrawal_ends_transfers() {
    let mut pair = Pair::opened(1000);
    let Side {
        arrived: Arrived { regions, .. },
        address,
        ..
    } = &mut pair.sides[1];
    let readable = regions.expose(address, Bytes::from(pattern(1 << 20, 1)));
    let writable = regions.expose_writable(address, Buffer::zeroed(1 << 20));
    let (into, from) = (Buffer::zeroed(1 << 20), Bytes::from(pattern(1 << 20, 1)));
    pair.sides[0].transfer(1, &access(&readable, 0, 1 << 20), Memory::Into(into));
    pair.sides[0].transfer(2, &access(&writable, 0, 1 << 20), Memory::From(from));
    for _ in 0..100 {
        pair.send(0);
        pair.receive(1).unwrap();
        pair.send(1);
        pair.receive(0).unwrap();
    }
    assert!(pair.sides[1].arrived.regions.withdraw(&readable).is_some());
    assert!(pair.sides[1].arrived.regions.withdraw(&writable).is_some());
    pair.settle().unwrap();
    let mut refused: Vec<_> = pair.sides[0]
        .arrived
        .happenings
        .iter()
        .map(|happening| match happening {
            Happening::Refused { id, error } => (*id, *error),
            other => panic!("{other:?}"),
        })
        .collect();
    refused.sort_by_key(|&(id, _)| id);
    assert_eq!(refused, [(1, AccessError::Unknown), (2, AccessError::Unknown)]);
}

/// A side that ends an association tells the other; during the handshake that is a refusal.
#[test]
fn farewells_are_told() {
    let mut pair = Pair::opened(1000);
    let farewell = pair.sides[0].association.farewell().unwrap();
    pair.sides[1].inbox.push_back(farewell.to_vec());
    assert!(matches!(pair.receive(1), Err(PeerDeath::Closed)));

    let mut pair = Pair::new(1000, &Limits::default());
    assert!(pair.sides[0].association.farewell().is_none());
    pair.send(0);
    let farewell = pair.sides[1].association.farewell().unwrap();
    pair.sides[0].inbox.push_back(farewell.to_vec());
    assert!(matches!(
        pair.receive(0),
        Err(PeerDeath::Handshake(HandshakeError::Refused))
    ));
}

/// One whose call was lost calls again, and loses nothing of what waited.
#[test]
fn lost_calls_are_repeated() {
    let mut pair = Pair::new(1000, &Limits::default());
    pair.sides[0].send(5, b"hello");
    pair.send(0);
    pair.sides[1].inbox.clear();
    let opening = Opening {
        association: 70,
        name: b"zero",
    };
    let called = address(1);
    let origin = &mut pair.sides[0].association;
    origin.call_again(introduction(0), called, &opening, [9; 32]);
    pair.settle().unwrap();
    assert!(matches!(&pair.sides[1].arrived.happenings[..],
        [Happening::Message { tag: 5, body }] if **body == *b"hello"));
}

/// Operations beyond the limit are refused as busy, not kept.
#[test]
fn served_transfers_are_limited() {
    let limits = Limits {
        served_transfers_max: 2,
        ..Limits::default()
    };
    let mut pair = Pair::new(1000, &limits);
    pair.settle().unwrap();
    let Side {
        arrived: Arrived { regions, .. },
        address,
        ..
    } = &mut pair.sides[1];
    let readable = regions.expose(address, Bytes::from(pattern(5000, 1)));
    for id in 0..3 {
        let into = Buffer::zeroed(5000);
        let access = access(&readable, 0, 5000);
        pair.sides[0].transfer(id, &access, Memory::Into(into));
    }
    pair.settle().unwrap();
    let busy = |happening: &&Happening| {
        matches!(
            happening,
            Happening::Refused {
                id: 2,
                error: AccessError::Busy
            }
        )
    };
    let happenings = &pair.sides[0].arrived.happenings;
    assert_eq!((happenings.len(), happenings.iter().filter(busy).count()), (3, 1));
}
