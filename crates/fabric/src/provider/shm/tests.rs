//! Peers on this host that prove who they are and then do not behave, played over plain sockets.

use std::{
    io::{IoSlice, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ropewalk_names::{Incarnation, JobId, Rank};
use rustix::{
    cmsg_space,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};

use super::{
    layout::{CONSUMED, Layout, MORE},
    offer::{DESCRIPTORS_MAX, Offer},
    ring::Producer,
    ring_memory::{RingMemory, Window},
};
use crate::{
    Endpoint, EndpointOptions, Event, FrameError, Identity, JobKey, Peer, PeerDeath, Role, Transports,
    fences::Fences,
    frame::{Header, Kind},
    handshake::{Handshake, Introduction},
    memfd::SharedMapping,
};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);
const LAYOUT: Layout = Layout::DEFAULT;

fn options() -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    EndpointOptions {
        transports: Transports {
            tcp: false,
            ..Transports::default()
        },
        ..EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity)
    }
}

fn drive<T>(endpoint: &mut Endpoint, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        endpoint.wait(Duration::from_millis(5));
        endpoint.progress();
        if let Some(found) = endpoint.poll_event().and_then(&mut wanted) {
            return found;
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
    }
}

fn death(endpoint: &mut Endpoint) -> PeerDeath {
    drive(endpoint, |event| match event {
        Event::PeerDied { cause, .. } => Some(cause),
        event => panic!("{event:?}"),
    })
}

/// A socket that has gone through the handshake with the endpoint.
fn dial_as_member(endpoint: &mut Endpoint) -> UnixStream {
    let address = endpoint.address().clone();
    let name = format!("ropewalk/{}", address.location());
    let name = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    let mut stream = UnixStream::connect_addr(&name).unwrap();
    let (mut handshake, greeting) = Handshake::initiate(introduction(), address, [3; 32]);
    stream.write_all(&greeting).unwrap();
    stream.set_nonblocking(true).unwrap();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LONG, "the handshake did not end");
        endpoint.progress();
        let mut byte = [0];
        if stream.read(&mut byte).is_err() {
            continue;
        }
        let step = handshake.handle_bytes(&byte).unwrap();
        stream.write_all(&step.reply).unwrap();
        if step.proven.is_some() {
            return stream;
        }
    }
}

fn send_offer(stream: &UnixStream, offer: &Offer, descriptors: &[BorrowedFd<'_>]) {
    let body = offer.encode();
    let header = Header::new(Kind::Offer, 0).encode(&body);
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let slices = [IoSlice::new(&header), IoSlice::new(&body)];
    sendmsg(stream, &slices, &mut ancillary, SendFlags::empty()).unwrap();
}

fn rings() -> Offer {
    Offer {
        rings: Some(LAYOUT),
        ..Offer::default()
    }
}

/// Memory for two rings, larger than needed, so that the endpoint may want more in it than these.
fn memory() -> (OwnedFd, Arc<SharedMapping>) {
    let (descriptor, mapping) = SharedMapping::create("test", 3 * LAYOUT.size()).unwrap();
    (descriptor, Arc::new(mapping))
}

/// The rings that a member has in its memory: the outgoing and the incoming one.
fn windows(mapping: &Arc<SharedMapping>) -> [Window; 2] {
    [0, 1].map(|index| Window::new(mapping.clone(), index * LAYOUT.size(), LAYOUT.size()).unwrap())
}

/// Puts this into the header of the second slot, which is the next to be looked at.
fn write_header(ring: &Window, fields: u32) {
    ring.store(LAYOUT.slot(1), 2 | u64::from(fields) << 32, Ordering::Release);
}

fn kind(kind: Kind) -> u32 {
    u32::from(kind as u8) << 24
}

fn introduction() -> Introduction {
    let identity = Identity {
        rank: Rank(9),
        ..options().key.identity()
    };
    Introduction {
        job: options().job,
        key: Arc::new(JobKey::from_bytes([2; 32]).key_of(identity)),
        peer: Peer {
            address: "shm://member".parse().unwrap(),
            identity,
            instance: 1,
        },
        fences: Fences::default(),
        encrypts: false,
    }
}

/// An offer has to be made first and once, with the memory that it speaks of, which has to be memory that stays.
#[test]
fn offers_that_cannot_be_end_the_connection() {
    let mut endpoint = Endpoint::bind(options()).unwrap();

    let stream = dial_as_member(&mut endpoint);
    send_offer(&stream, &Offer::default(), &[]);
    let cause = death(&mut endpoint);
    assert!(
        matches!(cause, PeerDeath::Protocol(FrameError::Unsolicited)),
        "{cause:?}"
    );

    let stream = dial_as_member(&mut endpoint);
    send_offer(&stream, &rings(), &[]);
    let cause = death(&mut endpoint);
    assert!(matches!(cause, PeerDeath::Io(_)), "{cause:?}");

    let stream = dial_as_member(&mut endpoint);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    send_offer(&stream, &rings(), &[file.as_fd()]);
    let cause = death(&mut endpoint);
    assert!(matches!(cause, PeerDeath::Io(_)), "{cause:?}");

    let (descriptor, _) = memory();
    let stream = dial_as_member(&mut endpoint);
    send_offer(&stream, &rings(), &[descriptor.as_fd()]);
    send_offer(&stream, &rings(), &[descriptor.as_fd()]);
    let cause = death(&mut endpoint);
    assert!(
        matches!(cause, PeerDeath::Protocol(FrameError::Unsolicited)),
        "{cause:?}"
    );

    let mut stream = dial_as_member(&mut endpoint);
    let frame = Header::new(Kind::Unexpected, 0).encode(b"");
    stream.write_all(&frame).unwrap();
    let cause = death(&mut endpoint);
    assert!(
        matches!(cause, PeerDeath::Protocol(FrameError::Unsolicited)),
        "{cause:?}"
    );
}

/// Whatever a member does to the memory that it shares, it loses its connection and nothing else happens.
#[test]
fn broken_rings_end_the_connection() {
    let mut endpoint = Endpoint::bind(options()).unwrap();
    // What it writes where, and how that is called.
    type Sabotage = fn(&[Window; 2]);
    let sabotages: [(Sabotage, FrameError); 4] = [
        (
            |[outgoing, _]| write_header(outgoing, 1 << 20 | kind(Kind::Unexpected)),
            FrameError::Length { length: 1 << 20 },
        ),
        (
            |[outgoing, _]| write_header(outgoing, MORE | 100 | kind(Kind::Unexpected)),
            FrameError::Length { length: 100 },
        ),
        (
            |[outgoing, _]| write_header(outgoing, kind(Kind::Get)),
            FrameError::Kind {
                kind: Kind::Get as u8,
            },
        ),
        (
            |[_, incoming]| incoming.store(CONSUMED, u64::MAX, Ordering::Relaxed),
            FrameError::Counter,
        ),
    ];
    for (sabotage, expected) in sabotages {
        let stream = dial_as_member(&mut endpoint);
        let (descriptor, mapping) = memory();
        send_offer(&stream, &rings(), &[descriptor.as_fd()]);
        let [outgoing, _] = windows(&mapping);
        let mut producer = Producer::new(outgoing, LAYOUT);
        assert!(
            producer
                .push(Kind::Unexpected as u8, 7, b"hello", &mut 0)
                .unwrap()
        );
        let from = drive(&mut endpoint, |event| match event {
            Event::Unexpected { from, tag: 7, body } if body == b"hello" => Some(from),
            event => panic!("{event:?}"),
        });
        sabotage(&windows(&mapping));
        (&stream)
            .write_all(&Header::new(Kind::Doorbell, 0).encode(b""))
            .unwrap();
        // So much that the counters of the other end are looked at.
        for _ in 0..2 * LAYOUT.slots() {
            if endpoint.send_unexpected(from, 0, &b"x"[..]).is_err() {
                break;
            }
        }
        let cause = death(&mut endpoint);
        assert!(
            matches!(&cause, PeerDeath::Protocol(found) if *found == expected),
            "{cause:?}, expected {expected:?}"
        );
    }
    assert!(endpoint.poll_event().is_none());
}
