//! Encrypted connections, with a member that sees what goes over them as everybody on the way does.

use super::*;
use crate::noise::{RECORD_SIZE_MAX, Records};

/// Stands in no bytes that are drawn by lot.
const MARKER: &[u8] = b"nobody but the peer may read this";

/// A member at the other end of a plain socket.
struct Member {
    stream: TcpStream,
    /// If it encrypts.
    records: Option<Box<Records>>,
    /// The bytes that came over the socket.
    seen: Vec<u8>,
    /// The frames in it.
    content: Vec<u8>,
}

impl Member {
    /// Connects; the first frames come in one piece with its proof.
    fn dial(address: &Address, encrypts: bool, first: &[u8]) -> Self {
        let itself = Introduction {
            encrypts,
            ..introduction(made_up())
        };
        let mut stream = dial(address);
        let (mut handshake, greeting) = Handshake::initiate(itself, address.clone(), [3; 32]);
        stream.write_all(&greeting).unwrap();
        let step = loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            let step = handshake.handle_bytes(&byte).unwrap();
            if step.proven.is_some() {
                break step;
            }
        };
        let mut member = Self {
            stream,
            records: handshake.take_records(),
            seen: Vec::new(),
            content: Vec::new(),
        };
        let bytes = [step.reply, member.wrap(first)].concat();
        member.stream.write_all(&bytes).unwrap();
        member
    }

    fn dial_in_background(endpoint: &mut Endpoint, encrypts: bool) -> Self {
        let address = endpoint.address().clone();
        beside(endpoint, || Self::dial(&address, encrypts, &[]))
    }

    /// The bytes to send over the socket so that these frames are received.
    fn wrap(&mut self, frames: &[u8]) -> Vec<u8> {
        let Some(records) = &mut self.records else {
            return frames.to_vec();
        };
        let mut bytes = Vec::new();
        for content in frames.chunks(RECORD_SIZE_MAX) {
            records.write(content);
            bytes.extend_from_slice(records.unsent());
            records.handle_sent(records.unsent().len());
        }
        bytes
    }

    fn send(&mut self, frames: &[u8]) {
        let bytes = self.wrap(frames);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Reads until this many bytes of frames have come.
    fn read(&mut self, count: usize) {
        while self.content.len() < count {
            let mut bytes = [0; 4096];
            let received = self.stream.read(&mut bytes).unwrap();
            assert!(received > 0, "the endpoint has closed the connection");
            let mut bytes = &bytes[..received];
            self.seen.extend_from_slice(bytes);
            let Some(records) = &mut self.records else {
                self.content.extend_from_slice(bytes);
                continue;
            };
            while !bytes.is_empty() {
                let space = records.space();
                let (now, later) = bytes.split_at(bytes.len().min(space.len()));
                space[..now.len()].copy_from_slice(now);
                records.handle_read(now.len());
                bytes = later;
                while let Some(content) = records.poll(&mut [0; RECORD_SIZE_MAX]).unwrap() {
                    self.content.extend_from_slice(content);
                }
            }
        }
    }
}

fn encrypting() -> Endpoint {
    Endpoint::bind(EndpointOptions {
        encrypt: true,
        ..options()
    })
    .unwrap()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// An eavesdropper on the way reads neither messages nor the data of transfers, in either direction, though
/// it reads all of it without encryption. The peer reads the same in both cases.
#[test]
fn nothing_is_seen_on_the_way() {
    let mut contents = Vec::new();
    for encrypt in [false, true] {
        let mut endpoint = Endpoint::bind(EndpointOptions { encrypt, ..options() }).unwrap();
        let data: Vec<u8> = MARKER.iter().copied().cycle().take(300_000).collect();
        let region = endpoint.expose(data.into());
        let mut member = Member::dial_in_background(&mut endpoint, encrypt);
        member.send(&frame(Kind::Unexpected, 4, MARKER));
        let from = drive(&mut endpoint, |_, event| match event {
            Some(Event::Unexpected { from, tag: 4, body }) if body[..] == *MARKER => Some(from),
            _ => None,
        });
        endpoint
            .send_unexpected(from, 5, Bytes::from_static(MARKER))
            .unwrap();
        let mut access = Access {
            region: region.region,
            token: region.token,
            offset: 0,
            length: region.length,
        };
        beside(&mut endpoint, || {
            member.read(HEADER_SIZE + MARKER.len());
            assert!(member.content.ends_with(MARKER));
            assert_eq!(contains(&member.seen, MARKER), !encrypt);
            member.seen.clear();
            access.length = 290_000;
            member.send(&frame(Kind::Get, 6, &access.encode()));
            member.read(HEADER_SIZE + MARKER.len() + 2 * HEADER_SIZE + 290_000);
            assert_eq!(contains(&member.seen, MARKER), !encrypt);
            // What is sent is no more than it has to be.
            assert!(member.seen.len() < 291_000);
        });
        contents.push(member.content);
    }
    assert!(contents[0] == contents[1]);
}

/// Frames that come with the end of the handshake are read as those after it.
#[test]
fn the_first_records_may_come_with_the_proof() {
    let mut endpoint = encrypting();
    let address = endpoint.address().clone();
    thread::scope(|scope| {
        // What it gives back is open until all of this is over.
        scope.spawn(|| {
            let first = [
                frame(Kind::Unexpected, 1, MARKER),
                frame(Kind::Unexpected, 2, &[7; 40_000]),
            ];
            Member::dial(&address, true, &first.concat())
        });
        for expected in [1, 2] {
            let length = drive(&mut endpoint, |_, event| match event {
                Some(Event::Unexpected { tag, body, .. }) if tag == expected => Some(body.len()),
                Some(event) => panic!("{event:?}"),
                None => None,
            });
            assert_eq!(length, if expected == 1 { MARKER.len() } else { 40_000 });
        }
    });
}

/// A record that was changed, repeated, left out or moved ends the connection with an error that says so. The
/// data before it is delivered, and nothing after it.
#[test]
fn what_is_tampered_with_is_not_delivered() {
    let frames: Vec<_> = (0..4).map(|tag| frame(Kind::Unexpected, tag, MARKER)).collect();
    type Change = fn(&mut Vec<Vec<u8>>);
    let changes: [(&str, Change, u64); 6] = [
        ("a bit of content", |records| records[2][9] ^= 1, 2),
        (
            "a bit of the tag",
            |records| *records[1].last_mut().unwrap() ^= 128,
            1,
        ),
        ("repeated", |records| records.insert(2, records[1].clone()), 2),
        ("left out", |records| drop(records.remove(1)), 1),
        ("moved", |records| records.swap(2, 3), 2),
        (
            "in the clear",
            |records| records[3] = frame(Kind::Unexpected, 3, MARKER),
            3,
        ),
    ];
    for (name, change, record) in changes {
        let mut endpoint = encrypting();
        let mut member = Member::dial_in_background(&mut endpoint, true);
        let mut records: Vec<_> = frames.iter().map(|frame| member.wrap(frame)).collect();
        change(&mut records);
        member.stream.write_all(&records.concat()).unwrap();
        let mut delivered = 0;
        let cause = drive(&mut endpoint, |_, event| match event {
            Some(Event::Unexpected { tag, body, .. }) => {
                assert!(tag == delivered && body[..] == *MARKER, "{name}: {tag}");
                delivered += 1;
                None
            }
            Some(Event::PeerDied { cause, .. }) => Some(cause),
            _ => None,
        });
        assert_eq!(delivered, record, "{name}");
        let expected = FrameError::Forged { record };
        assert!(
            matches!(cause, PeerDeath::Protocol(error) if error == expected),
            "{name}: {cause:?}"
        );
        assert!(is_dropped(member.stream), "{name}");
    }
}

/// Of a record that is cut off nothing is delivered, not even the frames in it that came whole.
#[test]
fn half_a_record_is_none() {
    let mut endpoint = encrypting();
    let mut member = Member::dial_in_background(&mut endpoint, true);
    let two = [
        frame(Kind::Unexpected, 1, MARKER),
        frame(Kind::Unexpected, 2, MARKER),
    ]
    .concat();
    let record = member.wrap(&two);
    member.stream.write_all(&record[..record.len() - 1]).unwrap();
    drop(member);
    let cause = drive(&mut endpoint, |_, event| match event {
        Some(Event::PeerDied { cause, .. }) => Some(cause),
        Some(event) => panic!("{event:?}"),
        None => None,
    });
    assert!(matches!(cause, PeerDeath::Closed), "{cause:?}");
}

/// An endpoint that encrypts and one that does not refuse each other, and both sides of the call are told why.
#[test]
fn nobody_encrypts_alone() {
    for encrypt in [false, true] {
        let mut called = Endpoint::bind(EndpointOptions { encrypt, ..options() }).unwrap();
        let mut caller = Endpoint::bind(EndpointOptions {
            encrypt: !encrypt,
            ..options()
        })
        .unwrap();
        let address = called.address().clone();
        caller
            .send_unexpected(&address, 1, Bytes::from_static(MARKER))
            .unwrap();
        let cause = drive(&mut caller, |_, event| {
            called.progress();
            assert!(called.poll_event().is_none());
            match event {
                Some(Event::PeerDied { cause, .. }) => Some(cause),
                _ => None,
            }
        });
        let expected = HandshakeError::Encryption { encrypts: encrypt };
        assert!(
            matches!(&cause, PeerDeath::Handshake(error) if *error == expected),
            "{cause:?}"
        );
    }
}

/// Traffic that stays on this host is not encrypted, and so it does not matter there who would.
#[test]
fn shared_memory_is_as_ever() {
    let sharing = |encrypt| {
        Endpoint::bind(EndpointOptions {
            encrypt,
            transports: Transports::default(),
            ..options()
        })
        .unwrap()
    };
    let (mut one, mut other) = (sharing(true), sharing(false));
    let address = other.address().clone();
    one.send_unexpected(&address, 1, Bytes::from_static(MARKER))
        .unwrap();
    let body = drive(&mut other, |_, event| {
        one.progress();
        match event {
            Some(Event::Unexpected { body, .. }) => Some(body),
            _ => None,
        }
    });
    assert_eq!(body[..], *MARKER);
}

/// Nothing that is asked to encrypt goes over a provider of another crate, nor what asks for another one.
#[test]
fn providers_of_other_crates_are_refused() {
    let bind = |encrypt, asked: &str| {
        let options = EndpointOptions {
            encrypt,
            transports: asked.parse().unwrap(),
            ..options()
        };
        Endpoint::bind_with(options, "other", |choice, _| Err(choice.to_owned())).unwrap_err()
    };
    let refused = bind(true, "other:choice");
    assert!(matches!(refused, BindError::Unencrypted { .. }), "{refused}");
    let unknown = bind(false, "another:choice");
    assert!(matches!(unknown, BindError::Unknown { .. }), "{unknown}");
    let failed = bind(false, "other:choice");
    assert_eq!(std::error::Error::source(&failed).unwrap().to_string(), "choice");
}

/// A large message goes through although the peer reads it a little at a time.
#[test]
fn slow_readers_get_all_of_it() {
    let mut endpoint = encrypting();
    let mut member = Member::dial_in_background(&mut endpoint, true);
    member.send(&frame(Kind::Unexpected, 1, b""));
    let from = drive(&mut endpoint, |_, event| match event {
        Some(Event::Unexpected { from, .. }) => Some(from),
        _ => None,
    });
    let body: Vec<u8> = (0..8 << 20).map(|at: u32| (at / 1000) as u8).collect();
    endpoint
        .send_unexpected(from, 2, Bytes::from(body.clone()))
        .unwrap();
    beside(&mut endpoint, || member.read(HEADER_SIZE + body.len()));
    assert!(member.content[HEADER_SIZE..] == body);
}
