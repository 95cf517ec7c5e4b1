//! The rules by which the processes of a table share the work on a call.

use std::sync::atomic::Ordering;

use super::row::Word;

/// The words of one call, which later ones use again. All zero, nobody has begun.
///
/// Each word names its call in its upper half, and what is of an earlier one counts as zero.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Chunks<W> {
    /// The number of chunks that were claimed.
    claimed: W,
    /// A bit for each chunk that is finished.
    finished: [W; WORDS],
}

impl<W: Word> Chunks<W> {
    /// Claims a chunk that nobody has claimed yet.
    pub(super) fn claim(&self, call: u64, count: u32) -> Option<u32> {
        loop {
            let word = self.claimed.load(Ordering::Relaxed);
            let chunk = bits(word, call);
            if chunk >= count {
                return None;
            }
            if self
                .claimed
                .compare_exchange(word, word_of(call, chunk + 1), Ordering::Relaxed)
            {
                return Some(chunk);
            }
        }
    }

    /// A chunk is finished. Several may say so.
    pub(super) fn finish(&self, call: u64, chunk: u32) {
        let place = &self.finished[chunk as usize / FLAGS];
        loop {
            let word = place.load(Ordering::Relaxed);
            let flags = bits(word, call) | flag(chunk);
            // What was written into the chunk comes before it, and the look at who sleeps after it.
            if place.compare_exchange(word, word_of(call, flags), Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Says if a chunk is finished. Then all that was written into it can be read.
    pub(super) fn is_finished(&self, call: u64, chunk: u32) -> bool {
        let word = self.finished[chunk as usize / FLAGS].load(Ordering::SeqCst);
        bits(word, call) & flag(chunk) != 0
    }

    /// Says if all chunks are finished.
    pub(super) fn are_finished(&self, call: u64, count: u32) -> bool {
        (0..count).all(|chunk| self.is_finished(call, chunk))
    }
}

fn word_of(call: u64, bits: u32) -> u64 {
    tag(call) << 32 | u64::from(bits)
}

fn bits(word: u64, call: u64) -> u32 {
    match word >> 32 == tag(call) {
        true => word as u32,
        false => 0,
    }
}

/// The name of a call; the first is not zero. Nobody works on a call any more when another one with its name comes.
fn tag(call: u64) -> u64 {
    u64::from((call as u32).wrapping_add(1))
}

fn flag(chunk: u32) -> u32 {
    1 << (chunk as usize % FLAGS)
}

const FLAGS: usize = u32::BITS as usize;
/// The most chunks of a call.
pub(super) const CHUNKS_MAX: usize = 1024;
const WORDS: usize = CHUNKS_MAX / FLAGS;
