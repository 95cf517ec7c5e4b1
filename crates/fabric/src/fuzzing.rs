//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with the
//! parser.

use bytes::Bytes;
use ropewalk_names::{Held, Incarnation, JobId, Rank};

use crate::{
    Address, Identity, JobKey, LabelledMemfd, Role,
    frame::{Decoded, Decoder},
    handshake::{HANDSHAKE_SIZE_MAX, Handshake, Introduction},
    provider::shm,
    region_table::Access,
};

/// Looks for the label in memory that a rank has left.
pub fn labelled_memory(bytes: &[u8]) {
    if let Ok(Some((label, _))) = LabelledMemfd::parse(Bytes::copy_from_slice(bytes)) {
        assert!(
            label.len() <= Held::LABEL_SIZE_MAX,
            "a label of {} bytes",
            label.len()
        );
    }
}

/// Decodes a stream of frames, in pieces whose size the first byte says; with an odd one messages are read in place.
pub fn frames(bytes: &[u8]) {
    let Some((&size, mut stream)) = bytes.split_first() else {
        return;
    };
    let mut decoder = Decoder::new(1 << 20);
    while !stream.is_empty() {
        let count = (usize::from(size) + 1).min(stream.len());
        let count = match size % 2 == 1 {
            true => {
                let (place, beyond) = decoder.spaces(1 << 10);
                let space = if place.is_empty() { beyond } else { place };
                let count = count.min(space.len());
                space[..count].copy_from_slice(&stream[..count]);
                decoder.handle_read_to_spaces(count);
                count
            }
            false => {
                let space = decoder.space();
                let count = count.min(space.len());
                space[..count].copy_from_slice(&stream[..count]);
                decoder.handle_read(count);
                count
            }
        };
        stream = &stream[count..];
        loop {
            match decoder.poll() {
                Ok(Some(Decoded::Frame(_, body))) => drop(Access::decode(&body)),
                Ok(Some(Decoded::Bulk(_) | Decoded::BulkBytes(_))) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// Reads and writes a ring whose other end has put these bytes into their shared memory.
pub fn ring(bytes: &[u8]) {
    shm::fuzz_ring(bytes);
}

/// Reads and writes the memory of a peer that has put these bytes onto its board of regions.
pub fn board(bytes: &[u8]) {
    shm::fuzz_board(bytes);
}

/// Decodes what a peer says of the memory that it shares.
pub fn offer(bytes: &[u8]) {
    if let Ok(offer) = shm::Offer::decode(bytes) {
        assert_eq!(
            &offer.encode()[..],
            bytes,
            "an offer says more than was understood"
        );
    }
}

/// Goes through a handshake with a stranger, on the side and in pieces whose size the first byte says.
pub fn handshake(bytes: &[u8]) {
    let Some((&choice, stream)) = bytes.split_first() else {
        return;
    };
    let Ok(address) = "tcp://127.0.0.1:1".parse::<Address>() else {
        return;
    };
    let identity = Identity {
        role: Role::Rank,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    let key = JobKey::from_bytes([0; 32]).key_of(identity);
    let mut introduction = Introduction::new(JobId([0; 16]), key, address.clone(), 0);
    introduction.encrypts = choice >= 128;
    let fenced = Identity {
        rank: Rank(1),
        ..identity
    };
    introduction.fences.raise(fenced);
    let mut side = match choice % 2 {
        0 => Handshake::respond(introduction, [0; 32]),
        _ => Handshake::initiate(introduction, address, [0; 32]).0,
    };
    for piece in stream.chunks(usize::from(choice / 2) + 1) {
        match side.handle_bytes(piece) {
            Ok(step) => {
                assert!(step.consumed <= piece.len(), "more was consumed than there was");
                assert!(step.proven.is_none(), "a stranger was believed");
            }
            Err(error) => {
                let said = side.farewell(&error).map_or(0, <[u8]>::len);
                assert!(said <= HANDSHAKE_SIZE_MAX, "{said} bytes for a stranger");
                return;
            }
        }
    }
}
