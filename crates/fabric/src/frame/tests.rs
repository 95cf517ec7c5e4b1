//! Frames, whole and in pieces, right and wrong.

use proptest::{collection::vec, prelude::*, sample::Index};

use super::{
    decoder::{Incoming, MessageBody},
    *,
};

const MESSAGE_SIZE_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq)]
struct Frame {
    header: Header,
    body: Vec<u8>,
}

fn frames() -> impl Strategy<Value = Frame> {
    let error = prop_oneof![
        Just(Ok(())),
        Just(Err(AccessError::Unknown)),
        Just(Err(AccessError::OutOfRange)),
        Just(Err(AccessError::ReadOnly)),
        Just(Err(AccessError::Busy)),
    ];
    let kinds = prop_oneof![
        (Just(Kind::Unexpected), vec(any::<u8>(), 0..300), Just(Ok(()))),
        (Just(Kind::Expected), vec(any::<u8>(), 0..70_000), Just(Ok(()))),
        (Just(Kind::Get), vec(any::<u8>(), ACCESS_SIZE), Just(Ok(()))),
        (Just(Kind::Put), vec(any::<u8>(), ACCESS_SIZE), Just(Ok(()))),
        (Just(Kind::GetData), vec(any::<u8>(), 1..70_000), Just(Ok(()))),
        (Just(Kind::PutData), vec(any::<u8>(), 1..300), Just(Ok(()))),
        (Just(Kind::Done), Just(vec![]), error),
        (Just(Kind::Cancel), Just(vec![]), Just(Ok(()))),
    ];
    (kinds, any::<u64>(), any::<bool>()).prop_map(|((kind, body, status), id, checked)| Frame {
        header: Header {
            length: body.len(),
            kind,
            status,
            checked: checked && kind.may_be_checked(),
            id,
        },
        body,
    })
}

fn encode(frames: &[Frame]) -> Vec<u8> {
    let encode = |frame: &Frame| {
        let Frame { header, body } = frame;
        let checksum = header.encode_data_checksum(body);
        let checksum = checksum.as_ref().map_or(&[][..], |checksum| checksum);
        [&header.encode(body), checksum, body].concat()
    };
    frames.iter().flat_map(encode).collect()
}

/// Bulk frames with checked data.
fn checked_bulk() -> impl Strategy<Value = Frame> {
    let kinds = prop_oneof![Just(Kind::GetData), Just(Kind::PutData)];
    (kinds, vec(any::<u8>(), 1..70_000), any::<u64>()).prop_map(|(kind, body, id)| Frame {
        header: Header {
            length: body.len(),
            checked: true,
            ..Header::new(kind, id)
        },
        body,
    })
}

/// Feeds the stream in pieces of these sizes, reading bulk data and long messages straight into place where `in_place`
/// says so.
fn decode(mut stream: &[u8], sizes: &[usize], in_place: bool) -> Result<Vec<Frame>, FrameError> {
    let mut decoder = Decoder::new(MESSAGE_SIZE_MAX);
    let mut frames: Vec<Frame> = Vec::new();
    let mut sizes = sizes.iter().cycle();
    loop {
        while let Some(decoded) = decoder.poll()? {
            match decoded {
                Decoded::Frame(header, body) => frames.push(Frame {
                    header,
                    body: body.to_vec(),
                }),
                Decoded::Bulk(header) => frames.push(Frame { header, body: vec![] }),
                Decoded::BulkBytes(bytes) => frames.last_mut().unwrap().body.extend(bytes),
            }
        }
        if stream.is_empty() {
            return Ok(frames);
        }
        let size = (*sizes.next().unwrap()).min(stream.len());
        let bulk = decoder.bulk_remaining().min(size);
        if in_place && bulk > 0 {
            decoder.handle_bulk_read(&stream[..bulk])?;
            frames.last_mut().unwrap().body.extend(&stream[..bulk]);
            stream = &stream[bulk..];
            continue;
        }
        let count = match in_place {
            true => read_to_spaces(&mut decoder, &stream[..size]),
            false => {
                let space = decoder.space();
                let count = size.min(space.len());
                space[..count].copy_from_slice(&stream[..count]);
                decoder.handle_read(count);
                count
            }
        };
        assert!(count > 0);
        stream = &stream[count..];
    }
}

/// Reads as much as there is room for, part of it beyond a message. Returns how much that was.
fn read_to_spaces(decoder: &mut Decoder, stream: &[u8]) -> usize {
    let (place, beyond) = decoder.spaces(100);
    let first = stream.len().min(place.len());
    let second = (stream.len() - first).min(beyond.len());
    place[..first].copy_from_slice(&stream[..first]);
    beyond[..second].copy_from_slice(&stream[first..][..second]);
    decoder.handle_read_to_spaces(first + second);
    first + second
}

proptest! {
    /// Encoded frames are decoded, wherever the stream is cut and however its bulk data is read.
    #[test]
    fn frames_survive_any_cut(
        frames in vec(frames(), 1..8),
        sizes in vec(1usize..40_000, 1..10),
        in_place: bool,
    ) {
        prop_assert_eq!(decode(&encode(&frames), &sizes, in_place), Ok(frames));
    }

    /// Cut after every single byte it is the same.
    #[test]
    fn frames_survive_single_bytes(frames in vec(frames(), 1..3), in_place: bool) {
        prop_assert_eq!(decode(&encode(&frames), &[1], in_place), Ok(frames));
    }

    /// A flipped bit outside unchecked bulk data is an error, or leaves a frame incomplete; never another frame.
    #[test]
    fn flipped_bits_are_found(frames in vec(frames(), 1..4), at: Index, bit in 0..8u32) {
        let mut stream = encode(&frames);
        let at = at.index(stream.len());
        stream[at] ^= 1u8 << bit;
        let mut position = 0;
        let is_bulk = frames.iter().any(|frame| {
            let end = position + encode(std::slice::from_ref(frame)).len();
            let body = end - frame.body.len()..end;
            position = end;
            frame.header.kind.is_bulk() && !frame.header.checked && body.contains(&at)
        });
        match decode(&stream, &[10_000], false) {
            Err(_) => prop_assert!(!is_bulk),
            Ok(decoded) if is_bulk => prop_assert_eq!(decoded.len(), frames.len()),
            Ok(decoded) => prop_assert!(decoded.len() < frames.len() && frames.starts_with(&decoded)),
        }
    }

    /// Flipped bits in checked bulk data or in its checksum are found before its last bytes are taken, wherever the
    /// stream is cut and however the data is read.
    #[test]
    fn flipped_bits_in_checked_data_are_found(
        frame in checked_bulk(),
        flips in vec((any::<Index>(), 0..8u32), 1..4),
        sizes in vec(1usize..40_000, 1..10),
        in_place: bool,
    ) {
        let right = encode(std::slice::from_ref(&frame));
        let mut stream = right.clone();
        for (at, bit) in flips {
            let at = HEADER_SIZE + at.index(stream.len() - HEADER_SIZE);
            stream[at] ^= 1u8 << bit;
        }
        prop_assume!(stream != right);
        let decoded = decode(&stream, &sizes, in_place);
        prop_assert!(matches!(decoded, Err(FrameError::Checksum { .. })), "{:?}", decoded.map(|frames| frames.len()));
    }

    /// Garbage is an error or incomplete, not a panic, and keeps no more memory than has come.
    #[test]
    fn garbage_is_harmless(stream in vec(any::<u8>(), 0..5000), sizes in vec(1usize..100, 1..10)) {
        if let Ok(frames) = decode(&stream, &sizes, true) {
            // A checksum is right by chance once in 4 billion times.
            prop_assert!(frames.is_empty());
        }
    }

    /// A claim to a region survives the wire.
    #[test]
    fn accesses_survive_the_wire(region: u64, token: u128, offset: u64, length: u64) {
        let access = Access { region, token, offset, length };
        prop_assert_eq!(Access::decode(&access.encode()), Ok(access));
    }
}

/// Lengths beyond what their kind allows are refused before anything is kept for them.
#[test]
fn lengths_are_bounded_by_kind() {
    let header = |kind: Kind, length: u32| {
        let mut bytes = Header::new(kind, 1).encode(&[]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        decode(&bytes, &[100], false)
    };
    let refused = |length| Err(FrameError::Length { length });
    assert_eq!(header(Kind::Unexpected, u32::MAX), refused(u32::MAX as usize));
    assert_eq!(
        header(Kind::Expected, MESSAGE_SIZE_MAX as u32 + 1),
        refused(MESSAGE_SIZE_MAX + 1)
    );
    assert_eq!(header(Kind::GetData, 0), refused(0));
    assert_eq!(
        header(Kind::PutData, BULK_SIZE_MAX as u32 + 1),
        refused(BULK_SIZE_MAX + 1)
    );
    assert_eq!(header(Kind::Get, 39), refused(39));
    assert_eq!(header(Kind::Cancel, 1), refused(1));
}

/// Flags that a frame of its kind cannot have are refused.
#[test]
fn flags_are_bounded_by_kind() {
    let flagged = |kind: Kind, flags: u16, body: &[u8]| {
        let mut bytes = Header::new(kind, 1).encode(body);
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), body);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        decode(&[&bytes, body].concat(), &[100], false).map(|frames| frames[0].header.checked)
    };
    let access = [0; ACCESS_SIZE];
    assert_eq!(flagged(Kind::Get, 1, &access), Ok(true));
    assert_eq!(flagged(Kind::Get, 2, &access), Err(FrameError::Header));
    assert_eq!(flagged(Kind::Get, 3, &access), Err(FrameError::Header));
    assert_eq!(flagged(Kind::Put, 1, &access), Err(FrameError::Header));
    assert_eq!(flagged(Kind::Unexpected, 1, b"hello"), Err(FrameError::Header));
    assert_eq!(flagged(Kind::Cancel, 1, &[]), Err(FrameError::Header));
}

/// A message that announces a large body takes memory only as its bytes come, and a bounded part ahead of them.
#[test]
fn memory_follows_what_came() {
    let mut decoder = Decoder::new(1 << 30);
    let mut bytes = Header::new(Kind::Unexpected, 1).encode(&[]);
    bytes[..4].copy_from_slice(&(1u32 << 30).to_le_bytes());
    decoder.space()[..HEADER_SIZE].copy_from_slice(&bytes);
    decoder.handle_read(HEADER_SIZE);
    assert_eq!(decoder.poll(), Ok(None));
    decoder.space()[..1000].fill(1);
    decoder.handle_read(1000);
    assert_eq!(decoder.poll(), Ok(None));
    let taken = |decoder: &Decoder| match &decoder.body {
        Incoming::Message(body) => (body.filled, body.bytes.capacity()),
        body => panic!("{body:?}"),
    };
    assert_eq!(taken(&decoder), (1000, MessageBody::AHEAD));
    for _ in 0..40 {
        let count = read_to_spaces(&mut decoder, &[1; 100_000]);
        assert!(count > 0 && decoder.poll() == Ok(None));
    }
    let (filled, capacity) = taken(&decoder);
    assert!(
        filled > 3_000_000 && capacity <= 4 * filled,
        "{filled} {capacity}"
    );
}
