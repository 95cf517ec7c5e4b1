//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with the
//! parser.

use ropewalk_group::{Incarnation, JobId, Rank};

use crate::{
    Address, Identity, JobKey, Peer, Role,
    frame::{Decoded, Decoder},
    handshake::{Handshake, Introduction},
    region_table::Access,
};

/// Decodes a stream of frames, in pieces whose size the first byte says.
pub fn frames(bytes: &[u8]) {
    let Some((&size, mut stream)) = bytes.split_first() else {
        return;
    };
    let mut decoder = Decoder::new(1 << 20);
    while !stream.is_empty() {
        let space = decoder.space();
        let count = (usize::from(size) + 1).min(stream.len()).min(space.len());
        space[..count].copy_from_slice(&stream[..count]);
        decoder.handle_read(count);
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
    let introduction = Introduction {
        job: JobId([0; 16]),
        key: JobKey::from_bytes([0; 32]),
        peer: Peer {
            address: address.clone(),
            identity,
            instance: 0,
        },
    };
    let mut side = match choice % 2 {
        0 => Handshake::respond(introduction, [0; 32]),
        _ => Handshake::initiate(introduction, address, [0; 32]).0,
    };
    for piece in stream.chunks(usize::from(choice / 2) + 1) {
        match side.handle_bytes(piece) {
            Ok(step) => assert!(step.consumed <= piece.len(), "more was consumed than there was"),
            Err(_) => return,
        }
    }
}
