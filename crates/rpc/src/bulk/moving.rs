//! One transfer between a range of a bulk handle and memory here: which pieces to start, and what became of
//! them.

use std::{collections::BTreeMap, ops::Range};

use bytes::{Bytes, BytesMut};
use ropewalk_fabric::{Address, Buffer, LentBuffer, RegionHandle, SubmitError};

use crate::bulk::{
    BulkHandle,
    checksum::{ChecksumMismatch, Verifier},
    pieces::{Cutter, Parts, Path, Piece},
};

/// The name of a bulk transfer of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BulkId(pub(crate) u64);

/// A transfer that many operations make up.
///
/// Its owner starts what [`next_piece`](Self::next_piece) gives, with the memory that
/// [`take_buffer`](Self::take_buffer) or [`bytes`](Self::bytes) gives for it, and tells what became of it by
/// one of the `handle_*`, until [`is_done`](Self::is_done); [`finish`](Self::finish) then gives the memory back.
#[derive(Debug)]
pub(crate) struct Moving {
    handle: BulkHandle,
    range: Range<u64>,
    parts: Parts,
    cutter: Cutter,
    /// Pieces to be started again.
    refused: Vec<Piece>,
    memory: Memory,
    in_flight: usize,
    staged_bytes: usize,
    /// Where pieces that are staged go, by their places: the ranges of parts that they do not fill whole.
    reserved: BTreeMap<usize, Vec<Buffer>>,
    /// Pieces that are copied at the end, with the bytes that have come.
    late: Vec<(Piece, Buffer)>,
    /// Buffers of pieces that were staged.
    spare: Vec<Buffer>,
}

/// The memory here.
#[derive(Debug)]
enum Memory {
    /// To be filled.
    Into(Vec<Filled>),
    /// To be sent.
    From(Vec<Bytes>),
}

/// A part of the memory here that is to be filled.
#[derive(Debug)]
enum Filled {
    /// One operation has all of it.
    Away,
    /// Several fill it.
    Lent(LentBuffer),
    /// It is here.
    Whole(Buffer),
}

impl Moving {
    /// How many pieces are in progress at most: enough for every latency, and less than a peer serves.
    pub(crate) const PIECES_MAX: usize = 128;
    /// How many bytes of them are staged at most: they should stay in the processor's cache.
    const STAGED_BYTES_MAX: usize = 2 << 20;
    const SPARE_MAX: usize = 8;

    /// Fills `into` from what the handle shows from `offset` on.
    ///
    /// # Errors
    /// If that is not inside.
    pub(crate) fn pull(handle: &BulkHandle, offset: u64, into: Vec<Buffer>) -> Result<Self, SubmitError> {
        let parts = Parts::new(into.iter().map(|part| part.len()));
        let memory = Memory::Into(into.into_iter().map(Filled::Whole).collect());
        Self::new(handle, offset, parts, memory)
    }

    /// Writes `from` into what the handle shows from `offset` on.
    ///
    /// # Errors
    /// If that is not inside, or may not be written.
    pub(crate) fn push(handle: &BulkHandle, offset: u64, from: Vec<Bytes>) -> Result<Self, SubmitError> {
        let parts = Parts::new(from.iter().map(|part| part.len()));
        let moving = Self::new(handle, offset, parts, Memory::From(from))?;
        if !handle.is_writable_at(&moving.range) {
            return Err(SubmitError::ReadOnly);
        }
        Ok(moving)
    }

    fn new(handle: &BulkHandle, offset: u64, parts: Parts, memory: Memory) -> Result<Self, SubmitError> {
        let length = parts.len() as u64;
        let end = offset.checked_add(length).filter(|&end| end <= handle.len());
        let range = offset..end.ok_or(SubmitError::OutOfRange {
            offset,
            length,
            region_length: handle.len(),
        })?;
        Ok(Self {
            cutter: Cutter::new(handle.runs(), range.clone()),
            handle: handle.clone(),
            range,
            parts,
            refused: Vec::new(),
            memory,
            in_flight: 0,
            staged_bytes: 0,
            reserved: BTreeMap::new(),
            late: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// The next piece to start, if more should be in progress.
    pub(crate) fn next_piece(&mut self) -> Option<Piece> {
        if self.in_flight >= Self::PIECES_MAX || self.staged_bytes >= Self::STAGED_BYTES_MAX {
            return None;
        }
        let again = self.refused.pop();
        let piece = again.or_else(|| self.cutter.next_piece(self.handle.runs(), &self.parts))?;
        self.in_flight += 1;
        if piece.path == Path::Staged {
            self.staged_bytes += piece.length;
        }
        Some(piece)
    }

    /// The handle whose bytes are moved.
    pub(crate) fn handle(&self) -> &BulkHandle {
        &self.handle
    }

    /// Who exposes the first of these bytes.
    pub(crate) fn peer(&self) -> Option<&Address> {
        self.handle.peer_at(self.range.start)
    }

    /// The region that a piece lies in.
    pub(crate) fn region(&self, piece: &Piece) -> &RegionHandle {
        &self.handle.regions()[piece.region as usize]
    }

    /// The memory for a piece to be filled, which is made by `allocate` if there is none; `None` if the
    /// transfer is a push.
    pub(crate) fn take_buffer(
        &mut self,
        piece: &Piece,
        allocate: impl FnOnce(usize) -> Buffer,
    ) -> Option<Buffer> {
        let Memory::Into(parts) = &mut self.memory else {
            return None;
        };
        match piece.path {
            Path::Direct { part } if piece.length < self.parts.length(part) => {
                return Some(parts[part].lend(piece.length));
            }
            // If it is not here, it was lost with an operation that was refused.
            Path::Direct { part } => {
                return Some(match std::mem::replace(&mut parts[part], Filled::Away) {
                    Filled::Whole(buffer) => buffer,
                    Filled::Away | Filled::Lent(_) => allocate(piece.length),
                });
            }
            Path::Late => {}
            Path::Staged => {
                self.reserved.entry(piece.at).or_insert_with(|| {
                    let ranges = self.parts.ranges(piece.at, piece.length);
                    let partial = ranges.filter(|(part, range)| range.len() < self.parts.length(*part));
                    partial
                        .map(|(part, range)| parts[part].lend(range.len()))
                        .collect()
                });
            }
        }
        let fitting = self.spare.iter().position(|spare| spare.len() == piece.length);
        let spare = fitting.map(|fitting| self.spare.swap_remove(fitting));
        Some(spare.unwrap_or_else(|| allocate(piece.length)))
    }

    /// The bytes of a piece to be written; none if the transfer is a pull.
    pub(crate) fn bytes(&self, piece: &Piece) -> Bytes {
        let Memory::From(parts) = &self.memory else {
            return Bytes::new();
        };
        let mut ranges = self.parts.ranges(piece.at, piece.length);
        match piece.path {
            Path::Direct { .. } => ranges
                .next()
                .map(|(part, range)| parts[part].slice(range))
                .unwrap_or_default(),
            Path::Late | Path::Staged => {
                let mut staged = BytesMut::with_capacity(piece.length);
                for (part, range) in ranges {
                    staged.extend_from_slice(&parts[part][range]);
                }
                staged.freeze()
            }
        }
    }

    /// A piece came, in this buffer.
    pub(crate) fn handle_got(&mut self, piece: Piece, buffer: Buffer) {
        self.handle_ended(&piece);
        let Memory::Into(parts) = &mut self.memory else {
            return;
        };
        match piece.path {
            // It is part of what was lent, which knows of it.
            Path::Direct { part } if piece.length < self.parts.length(part) => {}
            Path::Direct { part } => parts[part] = Filled::Whole(buffer),
            Path::Late => self.late.push((piece, buffer)),
            Path::Staged => {
                let mut reserved = self.reserved.remove(&piece.at).into_iter().flatten();
                let mut rest = &buffer[..];
                for (part, range) in self.parts.ranges(piece.at, piece.length) {
                    let (bytes, left) = rest.split_at(range.len());
                    rest = left;
                    match &mut parts[part] {
                        Filled::Whole(whole) if range.len() == whole.len() => whole.copy_from_slice(bytes),
                        _ => reserved
                            .next()
                            .expect("what a piece does not fill whole was reserved for it")
                            .copy_from_slice(bytes),
                    }
                }
                if self.spare.len() < Self::SPARE_MAX {
                    self.spare.push(buffer);
                }
            }
        }
    }

    /// A piece was written.
    pub(crate) fn handle_put(&mut self, piece: &Piece) {
        self.handle_ended(piece);
    }

    /// There was no room for a piece: it has to be started again later. The memory it had is lost. It was to be
    /// overwritten, so other memory does as well; but what was lent of a buffer is not lent again.
    pub(crate) fn handle_refused(&mut self, mut piece: Piece) {
        self.handle_ended(&piece);
        if let (Memory::Into(_), Path::Direct { part }) = (&self.memory, &piece.path)
            && piece.length < self.parts.length(*part)
        {
            piece.path = Path::Late;
        }
        self.refused.push(piece);
    }

    fn handle_ended(&mut self, piece: &Piece) {
        self.in_flight -= 1;
        if piece.path == Path::Staged {
            self.staged_bytes -= piece.length;
        }
    }

    /// Returns true if all pieces have been moved.
    pub(crate) fn is_done(&self) -> bool {
        self.in_flight == 0 && self.refused.is_empty() && self.cutter.is_done()
    }

    /// The buffers that were filled, after the checksums of all segments that came whole were found right;
    /// none of a push.
    ///
    /// # Errors
    /// If one is wrong.
    pub(crate) fn finish(self) -> Result<Vec<Buffer>, ChecksumMismatch> {
        let Memory::Into(parts) = self.memory else {
            return Ok(Vec::new());
        };
        let parts = parts.into_iter().map(|part| match part {
            Filled::Whole(buffer) => Some(buffer),
            Filled::Lent(lent) => lent.into_buffer(),
            Filled::Away => None,
        });
        let mut parts: Vec<_> = parts
            .map(|part| part.expect("all that was lent has come back when the transfer is done"))
            .collect();
        for (piece, buffer) in self.late {
            let mut rest = &buffer[..];
            for (part, range) in self.parts.ranges(piece.at, piece.length) {
                let (bytes, left) = rest.split_at(range.len());
                rest = left;
                parts[part][range].copy_from_slice(bytes);
            }
        }
        if let Some(mut verifier) = Verifier::new(&self.handle, self.range) {
            parts.iter().try_for_each(|part| verifier.handle_bytes(part))?;
        }
        Ok(parts)
    }
}

impl Filled {
    /// The next bytes of it for one operation.
    fn lend(&mut self, length: usize) -> Buffer {
        if let Self::Whole(buffer) = self {
            *self = Self::Lent(LentBuffer::new(std::mem::take(buffer)));
        }
        match self {
            Self::Lent(lent) => lent.lend(length),
            Self::Away | Self::Whole(_) => unreachable!("a part is for one operation or for several"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::bulk::handle::Segment;

    fn handle(segments: &[(usize, usize)]) -> BulkHandle {
        let regions = segments
            .iter()
            .enumerate()
            .map(|(number, &(_, length))| RegionHandle {
                address: "tcp://127.0.0.1:4711".parse().unwrap(),
                region: number as u64,
                token: 0,
                length: length as u64 + 1000,
                writable: true,
            });
        let parts = segments
            .iter()
            .enumerate()
            .map(|(number, &(offset, length))| Segment {
                region: number as u32,
                offset: offset as u64,
                length: length as u64,
                crc32c: None,
            });
        BulkHandle::new(regions.collect(), parts.collect()).unwrap()
    }

    /// Lengths that the range is cut into: the rest is one more.
    fn cut(total: usize, cuts: &[usize]) -> Vec<usize> {
        let mut left = total;
        let mut lengths: Vec<_> = cuts
            .iter()
            .map(|&cut| {
                let length = cut.min(left);
                left -= length;
                length
            })
            .collect();
        lengths.push(left);
        lengths
    }

    proptest! {
        /// Whatever the segments and the parts here, in whatever order pieces end, and however often they are
        /// refused: every byte gets where it belongs, both ways, and no more is in progress than may be.
        #[test]
        fn all_bytes_get_there(
            segments in vec((0..1000_usize, prop_oneof![0..50_usize, 0..400_000_usize]), 1..8),
            cuts in vec(prop_oneof![0..50_usize, 0..400_000_usize], 0..8),
            (first, second) in (0..=1000_usize, 0..=1000_usize),
            order in vec((any::<usize>(), 0..4_u8), 64),
        ) {
            let handle = handle(&segments);
            let total = handle.len() as usize;
            let offset = total * first.min(second) / 1000;
            let lengths = cut(total * first.max(second) / 1000 - offset, &cuts);
            let mut remote: Vec<Vec<u8>> = (handle.regions().iter().enumerate())
                .map(|(number, region)| (0..region.length).map(|at| (at * 7 + number as u64) as u8).collect())
                .collect();
            let shown: Vec<u8> = (segments.iter().zip(&remote))
                .flat_map(|(&(offset, length), region)| &region[offset..offset + length])
                .copied()
                .collect();
            let mut order = order.into_iter().cycle();

            let into = lengths.iter().map(|&length| Buffer::zeroed(length)).collect();
            let mut pull = Moving::pull(&handle, offset as u64, into).unwrap();
            let mut started = Vec::new();
            while !pull.is_done() {
                while let Some(piece) = pull.next_piece() {
                    let mut buffer = pull.take_buffer(&piece, Buffer::zeroed).unwrap();
                    let from = &remote[piece.region as usize][piece.offset as usize..];
                    buffer.copy_from_slice(&from[..piece.length]);
                    started.push((piece, buffer));
                }
                prop_assert!(!started.is_empty() && started.len() <= Moving::PIECES_MAX);
                let (choice, refused) = order.next().unwrap();
                let (piece, buffer) = started.swap_remove(choice % started.len());
                match refused {
                    0 => pull.handle_refused(piece),
                    _ => pull.handle_got(piece, buffer),
                }
            }
            let pulled = pull.finish().unwrap();
            prop_assert!(pulled.iter().map(|part| part.len()).eq(lengths.iter().copied()));
            let pulled = pulled.iter().flat_map(|part| part.iter()).copied().collect::<Vec<_>>();
            prop_assert!(pulled == shown[offset..offset + pulled.len()]);

            let from = pulled.iter().map(|byte| !byte).collect::<Bytes>();
            let mut at = 0;
            let parts = lengths.iter().map(|length| {
                at += length;
                from.slice(at - length..at)
            });
            let mut push = Moving::push(&handle, offset as u64, parts.collect()).unwrap();
            let mut started = Vec::new();
            while !push.is_done() {
                started.extend(std::iter::from_fn(|| push.next_piece()));
                let (choice, refused) = order.next().unwrap();
                let piece = started.swap_remove(choice % started.len());
                if refused == 0 {
                    push.handle_refused(piece);
                    continue;
                }
                let bytes = push.bytes(&piece);
                prop_assert_eq!(bytes.len(), piece.length);
                let to = &mut remote[piece.region as usize][piece.offset as usize..];
                to[..piece.length].copy_from_slice(&bytes);
                push.handle_put(&piece);
            }
            let now_shown: Vec<u8> = (segments.iter().zip(&remote))
                .flat_map(|(&(offset, length), region)| &region[offset..offset + length])
                .copied()
                .collect();
            prop_assert!(now_shown[offset..offset + from.len()] == from);
            prop_assert!(now_shown[..offset] == shown[..offset]);
            prop_assert!(now_shown[offset + from.len()..] == shown[offset + from.len()..]);
        }
    }

    /// A transfer of bytes outside the handle is not started, even at the largest offset.
    #[test]
    fn ranges_outside_are_refused() {
        let handle = handle(&[(0, 10), (5, 10)]);
        for (offset, length, accepted) in [
            (0, 20, true),
            (20, 0, true),
            (20, 1, false),
            (21, 0, false),
            (u64::MAX, 1, false),
        ] {
            let pull = Moving::pull(&handle, offset, vec![Buffer::zeroed(length)]);
            assert_eq!(pull.is_ok(), accepted);
            let push = Moving::push(&handle, offset, vec![Bytes::from(vec![0; length])]);
            assert_eq!(push.is_ok(), accepted);
        }
    }
}
