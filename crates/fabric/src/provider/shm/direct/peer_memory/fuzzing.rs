use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::provider::shm::direct::region_board::OwnBoard;

const ARENA_LENGTH: usize = 8192;

/// Reads and writes the memory of a peer that has put these bytes onto its board. The first 8 words are a
/// slot, the rest says what is asked for. A wrong token is put right half of the time, so that the words
/// behind it are looked at. For any bytes, only the arena is touched, inside its bounds, where the slot says.
pub(crate) fn fuzz_board(bytes: &[u8]) {
    let mut words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let mut next = || words.next().unwrap_or_default();
    let slot: [u64; 8] = std::array::from_fn(|_| next());
    let choice = next();
    let region = match choice & 1 {
        0 => slot[0].wrapping_sub(1),
        _ => next(),
    };
    let token = match choice & 2 {
        0 => u128::from(slot[2]) << 64 | u128::from(slot[1]),
        _ => u128::from(next()) << 64 | u128::from(next()),
    };
    let length = next() % (2 * ARENA_LENGTH as u64);
    let access = Access {
        region,
        token,
        offset: next(),
        length,
    };
    let done = next() % (length + 1);
    let piece = Piece {
        access: &access,
        done,
    };
    let Ok(board) = OwnBoard::create() else { return };
    board.fill(region, slot);
    let Ok((arena, shown)) = SharedMapping::create("ropewalk-fuzz", ARENA_LENGTH) else {
        return;
    };
    let offer = MemoryOffer {
        arena_length: ARENA_LENGTH as u64,
        probe: None,
    };
    let descriptors = [Some(arena), board.as_fd().try_clone_to_owned().ok()];
    let descriptors: Vec<_> = descriptors.into_iter().flatten().collect();
    let Ok(mut peer) = PeerMemory::new(&offer, &descriptors, None) else {
        return;
    };
    let mut into = vec![1; (length - done) as usize];
    // The place within the arena that the slot names, for one who may use it.
    let place = slot[3]
        .checked_add(access.offset)
        .and_then(|at| at.checked_add(done));
    let may = slot[0] == region.wrapping_add(1) && slot[0] != 0 && slot[5] & 2 != 0;
    if peer.read(piece, &mut into) == Attempt::Done {
        assert!(may, "it was read without leave");
        assert!(into.iter().all(|&byte| byte == 0), "something else was read");
        let end = place.and_then(|place| place.checked_add(into.len() as u64));
        assert!(
            end.is_some_and(|end| end <= ARENA_LENGTH as u64),
            "it ends outside"
        );
    }
    let writing = AtomicU64::new(0);
    let from = vec![7; (length - done) as usize];
    if peer.write_as(piece, &from, &writing) == Attempt::Done {
        assert!(may && slot[5] & 1 != 0, "it was written without leave");
        let mut written = vec![0; from.len()];
        let place = place.unwrap_or(u64::MAX);
        assert!(
            copy_from(&shown, place, &mut written, false),
            "it was written outside"
        );
        assert_eq!(written, from, "it was written elsewhere");
    }
    assert_eq!(writing.load(Ordering::Relaxed), 0, "it seems to be written still");
}
