//! Where everything is in the memory of a ring.

/// The sizes of a ring, the same at both its ends.
///
/// ```text
///   0  consumed    how many slots and lines were consumed; written by the consumer
/// 128  sleeping    1 while the consumer wants the doorbell rung for a new message
/// 256  waiting     1 while the producer wants the doorbell rung for new space
/// 384  slots       one cache line each
///      lines       the byte ring: whatever does not fit into a slot
/// ```
///
/// A slot is 16 bytes of header and 48 of payload, all little-endian:
///
/// | bytes | field | |
/// |---|---|---|
/// | 0..4 | sequence | the slot's position from the beginning, plus 1, modulo 2^32: here the consumer looks |
/// | 4..8 | piece | length in bytes in the lowest 24 bits, kind in the next 4, [`MORE`] |
/// | 8..16 | tag | |
/// | 16..64 | payload | if it is at most [`INLINE_MAX`] bytes; else it is in the byte ring, from a new line on |
///
/// Each written word has cache lines of its own (two, because processors fetch them in pairs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    slots: u32,
    lines: u32,
}

/// The word in which the consumer says what it has consumed: slots in the lower half, lines in the upper.
pub(super) const CONSUMED: usize = 0;
/// The word in which the consumer says that it sleeps.
pub(super) const SLEEPING: usize = 128;
/// The word in which the producer says that it waits for space.
pub(super) const WAITING: usize = 256;
const SLOTS: usize = 384;

/// The size of a slot, and of a line of the byte ring, in bytes.
pub(super) const LINE_SIZE: usize = 64;
/// Where the tag is in a slot.
pub(super) const TAG: usize = 8;
/// Where the payload is in a slot.
pub(super) const PAYLOAD: usize = 16;
/// The largest payload in a slot, in bytes.
pub(super) const INLINE_MAX: usize = LINE_SIZE - PAYLOAD;
/// In a header: more of the same message is in the next slot.
pub(super) const MORE: u32 = 1 << 31;

impl Layout {
    /// The default layout of a connection's rings: enough for a few hundred small messages on their way,
    /// little enough for thousands of connections.
    pub(super) const DEFAULT: Self = Self {
        slots: 512,
        lines: (128 << 10) / LINE_SIZE as u32,
    };

    pub(super) const SLOTS_MAX: u32 = 1 << 16;
    const LINES_MAX: u32 = 1 << 17;

    /// A ring of this many slots and of a byte ring of this many lines. Nothing if these are no powers of
    /// two, or too few or too many.
    pub(super) const fn new(slots: u32, lines: u32) -> Option<Self> {
        let possible = slots.is_power_of_two()
            && lines.is_power_of_two()
            && slots >= 4
            && slots <= Self::SLOTS_MAX
            && lines >= 4
            && lines <= Self::LINES_MAX;
        if possible {
            Some(Self { slots, lines })
        } else {
            None
        }
    }

    /// How many slots.
    pub(super) const fn slots(self) -> u32 {
        self.slots
    }

    /// How many lines the byte ring has.
    pub(super) const fn lines(self) -> u32 {
        self.lines
    }

    /// The size of it all in bytes.
    pub(super) const fn size(self) -> usize {
        self.line(0) + self.lines as usize * LINE_SIZE
    }

    /// The most bytes of a message in one slot: with a quarter of the byte ring each, the consumer copies one
    /// piece while the producer writes the next.
    pub(super) const fn piece_max(self) -> usize {
        self.lines as usize / 4 * LINE_SIZE
    }

    /// Where the slot of this position is.
    pub(super) const fn slot(self, position: u32) -> usize {
        SLOTS + (position & (self.slots - 1)) as usize * LINE_SIZE
    }

    /// Where the line of this position is.
    pub(super) const fn line(self, position: u32) -> usize {
        SLOTS + self.slots as usize * LINE_SIZE + (position & (self.lines - 1)) as usize * LINE_SIZE
    }

    /// How many lines from that of this position to the byte ring's end.
    pub(super) const fn lines_to_end(self, position: u32) -> usize {
        (self.lines - (position & (self.lines - 1))) as usize
    }
}
