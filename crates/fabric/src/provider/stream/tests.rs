//! Peers that do not behave, played over plain sockets.

mod checked_data;
mod dials;
mod driving;
mod encrypted;
mod strangers;
mod unshared;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bytes::Bytes;
use ropewalk_names::{Incarnation, JobId, Rank};

use super::*;
use crate::{
    Completion, Endpoint, Event, FrameError, HandshakeError, Identity, JobKey, OperationError, Peer,
    RegionHandle, Role, Transports, Withdrawn,
    fences::Fences,
    frame::{ACCESS_SIZE, Header, Kind},
    handshake::Handshake,
};

/// Longer than anything takes on a loaded machine.
const LONG: Duration = Duration::from_secs(30);

fn options() -> EndpointOptions {
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    EndpointOptions {
        transports: Transports {
            shm: false,
            ..Transports::default()
        },
        ..EndpointOptions::new(JobId([1; 16]), job_key(), identity)
    }
}

fn job_key() -> JobKey {
    JobKey::from_bytes([2; 32])
}

fn endpoint(limits: Limits) -> Endpoint {
    Endpoint::bind(EndpointOptions { limits, ..options() }).unwrap()
}

/// Drives the endpoint until it tells what is wanted.
fn drive<T>(endpoint: &mut Endpoint, mut wanted: impl FnMut(&mut Endpoint, Option<Event>) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        endpoint.wait(Duration::from_millis(5));
        endpoint.progress();
        let event = endpoint.poll_event();
        if let Some(found) = wanted(endpoint, event) {
            return found;
        }
        assert!(start.elapsed() < LONG, "what was waited for did not happen");
    }
}

/// Drives the endpoint until a peer died there.
fn death(endpoint: &mut Endpoint) -> PeerDeath {
    drive(endpoint, |_, event| match event {
        Some(Event::PeerDied { cause, .. }) => Some(cause),
        _ => None,
    })
}

/// Drives the endpoint while `stranger` runs in a thread of its own; what that returns.
fn beside<T: Send>(endpoint: &mut Endpoint, stranger: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || sender.send(stranger()));
        drive(endpoint, |_, event| {
            assert!(event.is_none(), "{event:?}");
            receiver.try_recv().ok()
        })
    })
}

fn dial(address: &Address) -> TcpStream {
    let stream = TcpStream::connect(address.location()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

fn introduction(address: Address) -> Introduction {
    introduction_of(Incarnation(0), address)
}

/// Of an incarnation of the member that plays the peers.
fn introduction_of(incarnation: Incarnation, address: Address) -> Introduction {
    let identity = Identity {
        rank: Rank(9),
        incarnation,
        ..options().key.identity()
    };
    Introduction {
        job: options().job,
        key: Arc::new(job_key().key_of(identity)),
        peer: Peer {
            address,
            identity,
            instance: 1,
        },
        fences: Fences::default(),
        encrypts: false,
    }
}

/// Goes through the handshake as a member whose own address is made up.
fn dial_as_member(address: &Address) -> TcpStream {
    dial_as(made_up(), address)
}

/// Goes through the handshake as the member whose own address is `itself`.
fn dial_as(itself: Address, address: &Address) -> TcpStream {
    let mut stream = dial(address);
    let itself = introduction(itself);
    let (handshake, greeting) = Handshake::initiate(itself, address.clone(), [3; 32]);
    stream.write_all(&greeting).unwrap();
    prove(&mut stream, handshake);
    stream
}

/// Sends a message from a member, after which the endpoint can reach it.
fn greet(member: &mut TcpStream, endpoint: &mut Endpoint) {
    member.write_all(&frame(Kind::Unexpected, 0, b"hello")).unwrap();
    drive(endpoint, |_, event| {
        event.map(|event| assert!(matches!(event, Event::Unexpected { .. }), "{event:?}"))
    });
}

/// The address of members that cannot be dialed.
fn made_up() -> Address {
    "tcp://127.0.0.1:1".parse().unwrap()
}

fn prove(stream: &mut TcpStream, mut handshake: Handshake) {
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        let step = handshake.handle_bytes(&byte).unwrap();
        stream.write_all(&step.reply).unwrap();
        if step.proven.is_some() {
            return;
        }
    }
}

fn frame(kind: Kind, id: u64, body: &[u8]) -> Vec<u8> {
    [&Header::new(kind, id).encode(body)[..], body].concat()
}

/// Returns true if the other side closes the connection, without a word, within the time-out.
fn is_dropped(mut stream: TcpStream) -> bool {
    // A reset is as good as an end.
    !matches!(stream.read(&mut [0; 64]), Ok(1..))
}

fn dial_in_background(endpoint: &mut Endpoint) -> TcpStream {
    let address = endpoint.address().clone();
    beside(endpoint, || dial_as_member(&address))
}

/// A frame with a flipped bit, of an unknown kind, or too large ends the connection with the reason.
#[test]
fn corrupted_frames_end_the_connection() {
    let mut endpoint = endpoint(Limits::default());
    let mut corrupted = frame(Kind::Unexpected, 1, b"hello");
    corrupted[HEADER_SIZE + 2] ^= 4;
    let mut unknown = frame(Kind::Cancel, 1, b"");
    unknown[4] = 99;
    let mut large = frame(Kind::Unexpected, 1, b"");
    large[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    for (bytes, expected) in [
        (corrupted, None),
        (unknown, Some(FrameError::Kind { kind: 99 })),
        (
            large,
            Some(FrameError::Length {
                length: u32::MAX as usize,
            }),
        ),
    ] {
        let mut member = dial_in_background(&mut endpoint);
        member.write_all(&bytes).unwrap();
        let cause = death(&mut endpoint);
        let PeerDeath::Protocol(error) = cause else {
            panic!("{cause:?}");
        };
        match expected {
            Some(expected) => assert_eq!(error, expected),
            None => assert!(matches!(error, FrameError::Checksum { .. })),
        }
        assert!(is_dropped(member));
    }
}

/// A peer that vanishes in the middle of a frame, or of the data of its put, is dead, and what it had not
/// finished stays unfinished.
#[test]
fn half_a_frame_is_none() {
    let mut endpoint = endpoint(Limits::default());
    let region = endpoint.expose_writable(Buffer::zeroed(1000));
    let access = Access {
        region: region.region,
        token: region.token,
        offset: 0,
        length: 1000,
    };
    let message = frame(Kind::Unexpected, 1, &[7; 5000]);
    let put = [
        frame(Kind::Put, 1, &access.encode()),
        frame(Kind::PutData, 1, &[7; 600]),
    ]
    .concat();
    for bytes in [&message[..10], &message[..3000], &put[..put.len() - 1]] {
        let mut member = dial_in_background(&mut endpoint);
        member.write_all(bytes).unwrap();
        drop(member);
        assert!(matches!(death(&mut endpoint), PeerDeath::Closed));
    }
    let Some(Withdrawn::Writable(buffer)) = endpoint.withdraw(&region) else {
        panic!("the region is gone");
    };
    assert!(buffer[..599] == [7; 599] && buffer[599..] == [0; 401]);
}

/// Accepts one connection at a made-up endpoint and goes through the handshake as its owner.
fn accept_as_member(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    prove(
        &mut stream,
        Handshake::respond(introduction(address_of(listener)), [4; 32]),
    );
    stream
}

fn address_of(listener: &TcpListener) -> Address {
    format!("tcp://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap()
}

/// More data than was asked for, and an end before all of it came, are against the protocol: the buffer is
/// not handed out half filled.
#[test]
fn wrong_answers_to_a_get_end_it() {
    let too_much = |id| frame(Kind::GetData, id, &[1; 101]);
    let too_soon = |id| [frame(Kind::GetData, id, &[1; 60]), frame(Kind::Done, id, &[])].concat();
    for answer in [&too_much as &dyn Fn(u64) -> Vec<u8>, &too_soon] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut endpoint = endpoint(Limits::default());
        let region = RegionHandle {
            address: address_of(&listener),
            region: 0,
            token: 0,
            length: 100,
            writable: false,
        };
        let get = endpoint.get(&region, 0, Buffer::zeroed(100), LONG).unwrap();
        let answer = answer(get.tag());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = accept_as_member(&listener);
                stream.write_all(&answer).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let result = drive(&mut endpoint, |_, event| match event {
                Some(Event::Completed { result, .. }) => Some(result),
                _ => None,
            });
            assert!(matches!(
                result,
                Err(OperationError::PeerDied {
                    source: PeerDeath::Protocol(FrameError::Unsolicited),
                    ..
                })
            ));
            drop(endpoint);
        });
    }
}

/// The last words of a peer that dies with unread input are received, although the next send finds the
/// connection reset before they are read; nothing spins meanwhile.
#[test]
fn last_words_before_a_reset_are_received() {
    let mut endpoint = endpoint(Limits::default());
    let mut member = dial_in_background(&mut endpoint);
    greet(&mut member, &mut endpoint);
    let address = made_up();
    endpoint
        .send_unexpected(&address, 0, Bytes::from_static(b"unread"))
        .unwrap();
    endpoint.progress();
    // The system resets a connection that is closed with unread input.
    member.peek(&mut [0]).unwrap();
    member
        .write_all(&frame(Kind::Unexpected, 5, b"last words"))
        .unwrap();
    drop(member);
    endpoint
        .send_unexpected(&address, 0, Bytes::from_static(b"more"))
        .unwrap();
    match drive(&mut endpoint, |_, event| event) {
        Event::Unexpected { body, .. } => assert_eq!(body, "last words"),
        other => panic!("{other:?}"),
    }
    death(&mut endpoint);
    assert!(endpoint.next_deadline().is_none() && !endpoint.has_unsent());
}

/// A peer that asks for more transfers at once than are served gets the rest refused, and reads nothing of
/// it: others are served as ever.
#[test]
fn transfers_of_one_peer_are_limited() {
    let mut endpoint = endpoint(Limits {
        served_transfers_max: 3,
        ..Limits::default()
    });
    let region = endpoint.expose(Bytes::from(vec![1; 64 << 20]));
    let access = Access {
        region: region.region,
        token: region.token,
        offset: 0,
        length: region.length,
    };
    let mut greedy = dial_in_background(&mut endpoint);
    let requests: Vec<u8> = (0..10)
        .flat_map(|id| frame(Kind::Get, id, &access.encode()))
        .collect();
    greedy.write_all(&requests).unwrap();
    let refused = beside(&mut endpoint, || {
        let mut refused = Vec::new();
        while refused.len() < 7 {
            let mut header = [0; HEADER_SIZE];
            greedy.read_exact(&mut header).unwrap();
            let length = u32::from_le_bytes(*header.first_chunk().unwrap());
            let mut body = vec![0; length as usize];
            greedy.read_exact(&mut body).unwrap();
            if header[4] == Kind::Done as u8 {
                refused.push((header[8], header[5]));
            }
        }
        refused
    });
    // The status of a refusal for want of room is 4.
    assert_eq!(refused, (3..10).map(|id| (id, 4)).collect::<Vec<_>>());

    let mut other = Endpoint::bind(options()).unwrap();
    other.get(&region, 0, Buffer::zeroed(10), LONG).unwrap();
    let got = drive(&mut endpoint, |_, _| {
        other.progress();
        other.poll_event()
    });
    assert!(matches!(
        got,
        Event::Completed {
            result: Ok(Completion::Got(_)),
            ..
        }
    ));
}

/// A peer that asks without end and reads no answers is cut off, before its answers fill the memory.
#[test]
fn peers_that_do_not_read_are_cut_off() {
    let mut endpoint = endpoint(Limits {
        answers_max: 1000,
        ..Limits::default()
    });
    let mut peer = dial_in_background(&mut endpoint);
    peer.set_nonblocking(true).unwrap();
    let nothing = Access {
        region: 0,
        token: 0,
        offset: 0,
        length: 0,
    };
    let requests = frame(Kind::Get, 1, &nothing.encode()).repeat(1000);
    let mut at = 0;
    let cause = drive(&mut endpoint, |_, event| {
        if let Ok(count) = peer.write(&requests[at..]) {
            at = (at + count) % requests.len();
        }
        match event {
            Some(Event::PeerDied { cause, .. }) => Some(cause),
            _ => None,
        }
    });
    assert!(matches!(cause, PeerDeath::Unreading), "{cause:?}");
}

/// A peer that was busy for so long that the endpoint's own messages to it fill the queue may ask for
/// something when it comes back: it owes nothing.
#[test]
fn busy_peers_are_no_debtors() {
    let mut endpoint = endpoint(Limits {
        queued_bytes_max: 64 << 10,
        ..Limits::default()
    });
    let region = endpoint.expose(Bytes::from(vec![1; 100]));
    let mut peer = Endpoint::bind(options()).unwrap();
    peer.send_unexpected(endpoint.address(), 0, Bytes::new()).unwrap();
    drive(&mut endpoint, |_, event| {
        peer.progress();
        event
    });
    // It is not driven until neither the system nor the queue take any more.
    let body = Bytes::from_static(&[0; 1000]);
    let mut refusals = 0;
    while refusals < 100 {
        if endpoint.send_unexpected(peer.address(), 1, body.clone()).is_err() {
            refusals += 1;
            endpoint.progress();
        } else {
            refusals = 0;
        }
    }
    while endpoint.send_unexpected(peer.address(), 1, Bytes::new()).is_ok() {}
    peer.get(&region, 0, Buffer::zeroed(10), LONG).unwrap();
    let result = drive(&mut endpoint, |_, event| {
        assert!(event.is_none(), "{event:?}");
        peer.progress();
        std::iter::from_fn(|| peer.poll_event()).find_map(|event| match event {
            Event::Completed { result, .. } => Some(result),
            Event::PeerDied { cause, .. } => panic!("{cause:?}"),
            Event::Unexpected { .. } => None,
        })
    });
    assert!(matches!(result, Ok(Completion::Got(buffer)) if *buffer == [1; 10]));
}

/// An endpoint whose owner does not look at what came stops reading before that fills the memory, its own
/// messages to itself included, and nothing is lost.
#[test]
fn events_without_an_owner_are_limited() {
    const COUNT: u64 = 100;
    const SIZE: usize = 100_000;
    let limits = Limits {
        events_bytes_max: 10 * SIZE,
        ..Limits::default()
    };
    let mut receiver = endpoint(limits);
    let mut sender = endpoint(Limits::default());
    let address = receiver.address().clone();
    for tag in 0..COUNT {
        let body = Bytes::from(vec![1; SIZE]);
        sender.send_unexpected(&address, tag, body).unwrap();
    }
    let mut waiting = 0;
    let start = Instant::now();
    while waiting < 10 {
        assert!(start.elapsed() < LONG, "only {waiting} messages came");
        sender.progress();
        waiting += receiver.progress();
    }
    for _ in 0..1000 {
        sender.progress();
        assert_eq!(receiver.progress(), 0);
    }
    // One turn of reading may go beyond.
    assert!(waiting <= 10 + (2 << 20) / SIZE, "{waiting}");
    receiver.send_unexpected(&address, COUNT, Bytes::new()).unwrap();
    receiver.progress();
    let mut tags = Vec::new();
    drive(&mut receiver, |_, event| {
        sender.progress();
        if let Some(Event::Unexpected { tag, .. }) = event {
            tags.push(tag);
        }
        (tags.len() as u64 > COUNT).then_some(())
    });
    assert!(tags[..waiting].iter().copied().eq(0..waiting as u64));
    tags.retain(|&tag| tag != COUNT);
    assert!(tags.into_iter().eq(0..COUNT));
}

/// Every descriptor of an endpoint is closed on exec.
#[test]
fn children_inherit_nothing() {
    let mut endpoint = endpoint(Limits::default());
    let _member = dial_in_background(&mut endpoint);
    let sockets = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    for entry in sockets {
        let (Ok(target), Some(number)) = (
            std::fs::read_link(entry.path()),
            entry.file_name().to_str().map(str::to_owned),
        ) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        if !["socket:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]"]
            .iter()
            .any(|kind| target.starts_with(kind))
        {
            continue;
        }
        // Other tests of this process open and close theirs meanwhile.
        let Ok(information) = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else {
            continue;
        };
        let flags = information
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        let inherited_from_parent = number.parse::<u32>().unwrap() <= 2;
        assert!(
            inherited_from_parent || flags & 0o2_000_000 != 0,
            "descriptor {number}, {target}, would be inherited"
        );
    }
}
