//! A ring of messages in shared memory, from one producer to one consumer.
//!
//! A message is published by the sequence number in its slot, so that a small one costs the transfer of a single
//! cache line. The consumer tells what it has consumed each time this is a quarter of the ring; the producer
//! looks only when the ring seems full to it. As no piece of a message needs more than a quarter of the byte
//! ring, a producer that has no space is told of new space before the consumer has emptied the ring.
//!
//! Who sleeps says so first (`sleeping`, `waiting`), and then looks once more. The other publishes first, and
//! then looks whether somebody sleeps. Between the two steps of both stands a sequentially consistent fence:
//! at least one of them sees what the other did, and no doorbell is missed. The end that rings has taken the
//! wish back for the other, perhaps a newer one than it saw: the end that hears the doorbell has to say anew
//! that it sleeps. How it is rung is no business of the ring.
//!
//! Both ends take the other for hostile: what is read is bounded, copied and then looked at, and what cannot be is
//! an error. After an error the ring is of no use.

use std::sync::atomic::Ordering;

use super::{
    layout::{CONSUMED, INLINE_MAX, LINE_SIZE, Layout, MORE, PAYLOAD, SLEEPING, TAG, WAITING},
    ring_memory::RingMemory,
};
use crate::{Body, FrameError};

#[cfg(feature = "fuzzing")]
mod fuzzing;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;

#[cfg(feature = "fuzzing")]
pub(crate) use self::fuzzing::fuzz_ring;

/// The end of a ring that messages go into.
#[derive(Debug)]
pub(super) struct Producer<M> {
    memory: M,
    layout: Layout,
    written: Counters,
    pieces: u64,
    /// As last seen, and checked.
    consumed: Counters,
    /// Something was published since it was last looked whether the consumer sleeps.
    unannounced: bool,
}

/// The end of a ring that messages come out of.
#[derive(Debug)]
pub(super) struct Consumer<M> {
    memory: M,
    layout: Layout,
    message_size_max: usize,
    /// The largest message that comes in one slot.
    small_max: usize,
    consumed: Counters,
    pieces: u64,
    published: Counters,
    /// The beginning of a message whose other pieces are still to come.
    partial: Option<(Piece, Vec<u8>)>,
    asleep: bool,
    space_awaited: bool,
}

/// The largest number of a kind.
pub(super) const KIND_MAX: u8 = 15;

/// In a header: the length of the piece.
const LENGTH: u32 = 0x00ff_ffff;

/// How many slots and lines were used from the beginning, modulo 2^32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    slots: u32,
    lines: u32,
}

/// The content of a slot's header: it describes one piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    kind: u8,
    tag: u64,
    length: usize,
    more: bool,
}

impl<M: RingMemory> Producer<M> {
    /// The producer's end of a ring that nothing was written to yet.
    ///
    /// # Panics
    /// If the memory is smaller than the layout says.
    pub(super) fn new(memory: M, layout: Layout) -> Self {
        assert!(
            memory.size() >= layout.size(),
            "the memory of a ring is too small"
        );
        Self {
            memory,
            layout,
            written: Counters::default(),
            pieces: 0,
            consumed: Counters::default(),
            unannounced: false,
        }
    }

    /// Writes a message, or as much of it as there is space for: `sent` says how much of the body went before, and
    /// is moved on. Returns whether all of it is written; if not, the rest is to be written before any other
    /// message.
    ///
    /// # Errors
    /// If the peer's counters cannot be.
    #[inline]
    pub(super) fn push(
        &mut self,
        kind: u8,
        tag: u64,
        body: &[u8],
        sent: &mut usize,
    ) -> Result<bool, FrameError> {
        debug_assert!(kind <= KIND_MAX, "no such kind");
        let slots = self.written.slots.wrapping_sub(self.consumed.slots);
        if body.len() <= INLINE_MAX && slots < self.layout.slots() {
            self.publish(kind, tag, body.len() as u32, body);
            return Ok(true);
        }
        self.push_pieces(kind, tag, body, sent)
    }

    /// Pushes what does not go into one slot, or finds none.
    #[inline(never)]
    fn push_pieces(&mut self, kind: u8, tag: u64, body: &[u8], sent: &mut usize) -> Result<bool, FrameError> {
        loop {
            let rest = &body[*sent..];
            let length = rest.len().min(self.layout.piece_max());
            if !self.has_space(lines_of(length)) {
                self.look_for_space()?;
                if !self.has_space(lines_of(length)) {
                    return Ok(false);
                }
            }
            let more = length < rest.len();
            self.write_piece(kind, tag, &rest[..length], more);
            *sent += length;
            if !more {
                return Ok(true);
            }
        }
    }

    /// To be called after messages were pushed, before anything else is waited for. Returns whether the doorbell is
    /// to be rung: the consumer sleeps.
    #[inline]
    pub(super) fn announce(&mut self) -> bool {
        if !std::mem::take(&mut self.unannounced) {
            return false;
        }
        self.memory.fence();
        if self.memory.load(SLEEPING, Ordering::Relaxed) == 0 {
            return false;
        }
        // One ring is enough.
        self.memory.store(SLEEPING, 0, Ordering::Relaxed);
        true
    }

    /// Returns true if something was pushed that was not announced.
    pub(super) fn is_unannounced(&self) -> bool {
        self.unannounced
    }

    /// Asks for the doorbell to be rung when there is new space. Returns false, without having asked, if there is
    /// enough for any piece of a message already.
    ///
    /// # Errors
    /// If the peer's counters cannot be.
    pub(super) fn await_space(&mut self) -> Result<bool, FrameError> {
        self.memory.store(WAITING, 1, Ordering::Relaxed);
        self.memory.fence();
        self.look_for_space()?;
        let awaited = !self.has_space(self.layout.lines() / 4);
        if !awaited {
            self.memory.store(WAITING, 0, Ordering::Relaxed);
        }
        Ok(awaited)
    }

    /// The ring's sizes.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// How many pieces of messages were written.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// How many of them the consumer says to have taken.
    pub(super) fn pieces_taken(&self) -> u64 {
        let taken = Counters::unpack(self.memory.load(CONSUMED, Ordering::Relaxed));
        let on_their_way = self.written.since(taken).slots;
        self.pieces.saturating_sub(on_their_way.into())
    }

    fn has_space(&self, lines: u32) -> bool {
        let slots = self.written.slots.wrapping_sub(self.consumed.slots);
        let used = self.written.lines.wrapping_sub(self.consumed.lines);
        slots < self.layout.slots() && used + lines <= self.layout.lines()
    }

    #[cold]
    fn look_for_space(&mut self) -> Result<(), FrameError> {
        let now = Counters::unpack(self.memory.load(CONSUMED, Ordering::Acquire));
        let on_their_way = self.written.since(self.consumed);
        let gone = now.since(self.consumed);
        if gone.slots > on_their_way.slots || gone.lines > on_their_way.lines {
            return Err(FrameError::Counter);
        }
        self.consumed = now;
        Ok(())
    }

    fn write_piece(&mut self, kind: u8, tag: u64, bytes: &[u8], more: bool) {
        let mut payload = bytes;
        if bytes.len() > INLINE_MAX {
            let at = self.written.lines;
            let to_end = bytes.len().min(self.layout.lines_to_end(at) * LINE_SIZE);
            let (front, back) = bytes.split_at(to_end);
            self.memory.write(self.layout.line(at), front);
            self.memory.write(self.layout.line(0), back);
            self.written.lines = at.wrapping_add(lines_of(bytes.len()));
            payload = &[];
        }
        let length =
            u32::try_from(bytes.len()).expect("a piece is at most a quarter of a byte ring of 8 MiB");
        let length = length | if more { MORE } else { 0 };
        self.publish(kind, tag, length, payload);
    }

    /// Publishes the next slot; `length` is that of the piece, with [`MORE`] if it has that.
    #[inline]
    fn publish(&mut self, kind: u8, tag: u64, length: u32, payload: &[u8]) {
        let slot = self.layout.slot(self.written.slots);
        self.written.slots = self.written.slots.wrapping_add(1);
        let piece = length | u32::from(kind) << 24;
        let header = u64::from(self.written.slots) | u64::from(piece) << 32;
        self.memory.write_slot(slot, header, tag, payload);
        self.pieces += 1;
        self.unannounced = true;
    }
}

impl<M: RingMemory> Consumer<M> {
    /// The consumer's end of a ring that nothing was read from yet.
    ///
    /// # Panics
    /// If the memory is smaller than the layout says.
    pub(super) fn new(memory: M, layout: Layout, message_size_max: usize) -> Self {
        assert!(
            memory.size() >= layout.size(),
            "the memory of a ring is too small"
        );
        Self {
            memory,
            layout,
            message_size_max,
            small_max: message_size_max.min(INLINE_MAX),
            consumed: Counters::default(),
            pieces: 0,
            published: Counters::default(),
            partial: None,
            asleep: false,
            space_awaited: false,
        }
    }

    /// Takes the next message, if it is there: returns its kind, up to [`KIND_MAX`], and its tag. Its body is
    /// copied, so that the other end has no hold on it any more: straight to where its owner wants it, since
    /// moving it on step by step would cost more than its way through the ring.
    ///
    /// # Errors
    /// If what is in the ring is no message.
    #[inline(always)]
    pub(super) fn receive(&mut self, body: &mut Body) -> Result<Option<(u8, u64)>, FrameError> {
        let slot = self.layout.slot(self.consumed.slots);
        let Some(header) = self.header(slot) else {
            return Ok(None);
        };
        if self.asleep {
            self.wake();
        }
        let fields = (header >> 32) as u32;
        let length = (fields & LENGTH) as usize;
        let whole = fields & !(LENGTH | u32::from(KIND_MAX) << 24) == 0 && self.partial.is_none();
        if !whole || length > self.small_max {
            return self.receive_pieces(slot, header, body);
        }
        // All there may be: to copy a fixed number of bytes costs less than to copy few.
        let tag = self.memory.read_slot(slot, body.inline(length));
        self.consume(0);
        Ok(Some(((fields >> 24) as u8, tag)))
    }

    /// Takes a message that is not all in one slot, or is none.
    #[inline(never)]
    fn receive_pieces(
        &mut self,
        slot: usize,
        header: u64,
        body: &mut Body,
    ) -> Result<Option<(u8, u64)>, FrameError> {
        let piece = self.piece(slot, header)?;
        let Some((piece, bytes)) = self.receive_large(piece)? else {
            return Ok(None);
        };
        *body = bytes.into();
        Ok(Some((piece.kind, piece.tag)))
    }

    /// Returns true if there is something to receive.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.header(self.layout.slot(self.consumed.slots)).is_some()
    }

    /// Asks for the doorbell to be rung when there is something to receive. Returns false, without having asked, if
    /// there is already.
    pub(super) fn sleep(&mut self) -> bool {
        self.memory.store(SLEEPING, 1, Ordering::Relaxed);
        self.memory.fence();
        self.asleep = true;
        if self.is_ready() {
            self.wake();
        }
        self.asleep
    }

    /// How many pieces of messages were consumed.
    pub(super) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Returns true if the doorbell was asked for. It may have been rung since.
    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Wants no doorbell any more, if it did.
    pub(super) fn wake(&mut self) {
        self.asleep = false;
        self.memory.store(SLEEPING, 0, Ordering::Relaxed);
    }

    /// To be called after messages were received, before anything else is waited for. Returns whether the doorbell is
    /// to be rung: the producer waits for the space that they left.
    pub(super) fn take_space_awaited(&mut self) -> bool {
        std::mem::take(&mut self.space_awaited)
    }

    #[inline]
    fn header(&self, slot: usize) -> Option<u64> {
        let header = self.memory.load(slot, Ordering::Acquire);
        (header as u32 == self.consumed.slots.wrapping_add(1)).then_some(header)
    }

    fn piece(&self, slot: usize, header: u64) -> Result<Piece, FrameError> {
        let fields = (header >> 32) as u32;
        let piece = Piece {
            kind: (fields >> 24) as u8 & KIND_MAX,
            tag: self.memory.load(slot + TAG, Ordering::Relaxed),
            length: (fields & LENGTH) as usize,
            more: fields & MORE != 0,
        };
        if fields & 0x7000_0000 != 0 {
            return Err(FrameError::Header);
        }
        // Pieces that others follow are as large as they can be: there cannot be endlessly many in a message.
        let piece_max = self.layout.piece_max();
        if piece.length > piece_max.min(self.message_size_max) || (piece.more && piece.length != piece_max) {
            return Err(FrameError::Length { length: piece.length });
        }
        Ok(piece)
    }

    fn receive_large(&mut self, first: Piece) -> Result<Option<(Piece, Vec<u8>)>, FrameError> {
        let mut piece = first;
        loop {
            // What there is room for follows what came: whoever announces much must also send it.
            let (begun, mut bytes) = self.partial.take().unwrap_or((piece, Vec::new()));
            if begun.kind != piece.kind || begun.tag != piece.tag {
                return Err(FrameError::Unsolicited);
            }
            let length = bytes.len() + piece.length;
            if length > self.message_size_max {
                return Err(FrameError::Length { length });
            }
            let slot = self.layout.slot(self.consumed.slots);
            if piece.length <= INLINE_MAX {
                self.memory.append(slot + PAYLOAD, piece.length, &mut bytes);
                self.consume(0);
            } else {
                let at = self.consumed.lines;
                let to_end = piece.length.min(self.layout.lines_to_end(at) * LINE_SIZE);
                self.memory.append(self.layout.line(at), to_end, &mut bytes);
                let back = piece.length - to_end;
                self.memory.append(self.layout.line(0), back, &mut bytes);
                self.consume(lines_of(piece.length));
            }
            if !piece.more {
                return Ok(Some((piece, bytes)));
            }
            self.partial = Some((begun, bytes));
            let slot = self.layout.slot(self.consumed.slots);
            let Some(header) = self.header(slot) else {
                return Ok(None);
            };
            piece = self.piece(slot, header)?;
        }
    }

    #[inline]
    fn consume(&mut self, lines: u32) {
        self.pieces += 1;
        self.consumed.slots = self.consumed.slots.wrapping_add(1);
        self.consumed.lines = self.consumed.lines.wrapping_add(lines);
        let unpublished = self.consumed.since(self.published);
        if unpublished.slots >= self.layout.slots() / 4 || unpublished.lines >= self.layout.lines() / 4 {
            self.publish();
        }
    }

    #[cold]
    fn publish(&mut self) {
        self.memory
            .store(CONSUMED, self.consumed.pack(), Ordering::Release);
        self.published = self.consumed;
        self.memory.fence();
        if self.memory.load(WAITING, Ordering::Relaxed) != 0 {
            self.memory.store(WAITING, 0, Ordering::Relaxed);
            self.space_awaited = true;
        }
    }
}

impl Counters {
    fn pack(self) -> u64 {
        u64::from(self.slots) | u64::from(self.lines) << 32
    }

    fn unpack(word: u64) -> Self {
        Self {
            slots: word as u32,
            lines: (word >> 32) as u32,
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            slots: self.slots.wrapping_sub(earlier.slots),
            lines: self.lines.wrapping_sub(earlier.lines),
        }
    }
}

/// How many lines of the byte ring a piece of this length takes.
#[inline]
fn lines_of(length: usize) -> u32 {
    if length <= INLINE_MAX {
        0
    } else {
        length.div_ceil(LINE_SIZE) as u32
    }
}
