//! Which bytes go where: a range of a bulk handle, which lies in many places at the origin, and the memory
//! here, which may lie in many places too, cut into pieces that one operation each can move.

use std::ops::Range;

use crate::bulk::handle::Segment;

/// Bytes that lie in a row in one region, however many segments they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where it starts in what the handle shows.
    pub(crate) start: u64,
    /// Which of the handle's regions.
    pub(crate) region: u32,
    /// Where in the region.
    pub(crate) offset: u64,
    /// How long it is; never 0.
    pub(crate) length: u64,
}

/// The bytes that one operation moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which of the handle's regions.
    pub(crate) region: u32,
    /// Where in the region.
    pub(crate) offset: u64,
    /// Where in the memory here, its parts taken as one range.
    pub(crate) at: usize,
    /// How long it is; never 0.
    pub(crate) length: usize,
    /// How it is moved.
    pub(crate) path: Path,
}

/// How a piece gets from or to the memory here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Straight, inside this one part of the memory here.
    Direct {
        /// Which.
        part: usize,
    },
    /// By a buffer of its own that is copied when all has come.
    Late,
    /// By a buffer of its own that is copied when it has come.
    Staged,
}

/// The memory here: parts that are taken as one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Where each ends; the last one where all of it does.
    ends: Vec<usize>,
}

/// Cuts a range of a handle into pieces, in order.
#[derive(Clone, Debug)]
pub(crate) struct Cutter {
    /// The next byte, in what the handle shows.
    next: u64,
    /// Where the range starts there.
    start: u64,
    /// Where it ends there.
    end: u64,
    /// Which run the next byte lies in.
    run: usize,
    /// Which part here the next byte lies in, unless it is empty.
    part: usize,
}

impl Piece {
    /// Pieces below this are copied if that saves operations: the copy costs less than the operation.
    pub(crate) const COPIED_MAX: usize = 16 << 10;
    /// The longest piece that is staged: it is still in the processor's cache when it is copied.
    pub(crate) const STAGED_MAX: usize = 256 << 10;
}

/// The segments' bytes in as few runs as possible: segments that were packed into one region make one.
pub(crate) fn runs_of(segments: &[Segment]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut start = 0;
    for segment in segments.iter().filter(|segment| segment.length > 0) {
        match runs.last_mut() {
            Some(run) if run.region == segment.region && run.offset + run.length == segment.offset => {
                run.length += segment.length;
            }
            _ => runs.push(Run {
                start,
                region: segment.region,
                offset: segment.offset,
                length: segment.length,
            }),
        }
        start += segment.length;
    }
    runs
}

impl Parts {
    pub(crate) fn new(lengths: impl IntoIterator<Item = usize>) -> Self {
        let mut end = 0;
        let ends = lengths.into_iter().map(|length| {
            end += length;
            end
        });
        Self { ends: ends.collect() }
    }

    /// How long all of it is.
    pub(crate) fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Where in the parts `length` bytes from `at` on lie: which part, and which range of it.
    pub(crate) fn ranges(&self, at: usize, length: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let first = self.ends.partition_point(|&end| end <= at);
        let end = at + length;
        (first..self.ends.len())
            .map(|part| (part, self.start(part), self.ends[part]))
            .take_while(move |&(_, part_start, _)| part_start < end)
            .filter(|(_, part_start, part_end)| part_start < part_end)
            .map(move |(part, part_start, part_end)| {
                (
                    part,
                    at.max(part_start) - part_start..end.min(part_end) - part_start,
                )
            })
    }

    /// How long a part is.
    pub(crate) fn length(&self, part: usize) -> usize {
        self.ends[part] - self.start(part)
    }

    /// Where a part starts in the range.
    fn start(&self, part: usize) -> usize {
        part.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

impl Cutter {
    /// Cuts the range of what `runs` show; it must be inside, and as long as the parts that are later given.
    pub(crate) fn new(runs: &[Run], range: Range<u64>) -> Self {
        Self {
            next: range.start,
            start: range.start,
            end: range.end,
            run: runs.partition_point(|run| run.start + run.length <= range.start),
            part: 0,
        }
    }

    /// Returns true if all pieces were given.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.end
    }

    /// The next piece. Always with the same runs and parts.
    pub(crate) fn next_piece(&mut self, runs: &[Run], parts: &Parts) -> Option<Piece> {
        if self.is_done() {
            return None;
        }
        // Both ends of the range are inside, and what is left is not empty: there is such a run and such a part.
        let run = &runs[self.run];
        // What is here is memory that exists, so its places fit a usize.
        let at = (self.next - self.start) as usize;
        while parts.ends[self.part] <= at {
            self.part += 1;
        }
        let run_left = (run.start + run.length).min(self.end) - self.next;
        let run_left = usize::try_from(run_left).unwrap_or(usize::MAX);
        let direct = Self::direct_length(parts, at, self.part, run_left);
        let length = direct.unwrap_or_else(|| Self::staged_length(parts, at, run_left));
        // There may be nothing that it could go together with.
        let path = if length <= parts.ends[self.part] - at {
            Path::Direct { part: self.part }
        } else {
            Path::Staged
        };
        let piece = Piece {
            region: run.region,
            offset: run.offset + (self.next - run.start),
            at,
            length,
            path,
        };
        self.next += length as u64;
        if self.next == run.start + run.length {
            self.run += 1;
        }
        Some(piece)
    }

    /// How much can be moved straight from or to this part here, if that is worth an operation.
    fn direct_length(parts: &Parts, at: usize, part: usize, run_left: usize) -> Option<usize> {
        let length = run_left.min(parts.ends[part] - at);
        (length == run_left || length > Piece::COPIED_MAX).then_some(length)
    }

    /// How much is to be copied: up to the next part that need not be.
    fn staged_length(parts: &Parts, at: usize, run_left: usize) -> usize {
        let longest = run_left.min(Piece::STAGED_MAX);
        let mut length = 0;
        for (part, range) in parts.ranges(at, longest) {
            // A short end could go alone, but goes with what is copied anyway.
            let direct = Self::direct_length(parts, at + length, part, run_left - length);
            if length > 0 && direct.is_some_and(|direct| direct > Piece::COPIED_MAX) {
                break;
            }
            length += range.len();
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn pieces(segments: &[Segment], range: Range<u64>, parts: &Parts) -> Vec<Piece> {
        let runs = runs_of(segments);
        let mut cutter = Cutter::new(&runs, range);
        std::iter::from_fn(|| cutter.next_piece(&runs, parts)).collect()
    }

    /// Lengths on both sides of all limits.
    fn any_length() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 1..40_u64, 10_000..40_000_u64, 200_000..700_000_u64]
    }

    fn any_segments() -> impl Strategy<Value = Vec<Segment>> {
        // A gap of 0 lets a segment continue the one before it.
        vec((0..3_u32, any_length(), prop_oneof![Just(0), 1..10_u64]), 0..12).prop_map(|list| {
            let mut ends = [0; 3];
            let segments = list.into_iter().map(|(region, length, gap)| {
                let end = &mut ends[region as usize];
                let offset = *end + gap;
                *end = offset + length;
                Segment {
                    region,
                    offset,
                    length,
                    crc32c: None,
                }
            });
            segments.collect()
        })
    }

    /// Parts that are as long together as the range: cut at `cuts`, per mille.
    fn parts_of(length: u64, mut cuts: Vec<u64>) -> Parts {
        cuts.sort_unstable();
        let mut at = 0;
        let mut lengths: Vec<usize> = Vec::new();
        for cut in cuts {
            let end = length * cut / 1000;
            lengths.push((end - at) as usize);
            at = end;
        }
        lengths.push((length - at) as usize);
        Parts::new(lengths)
    }

    proptest! {
        /// The pieces are the range, each byte once and in order, from where the segments say it is; none is
        /// empty, too long to be staged, or said to be direct where it is not.
        #[test]
        fn pieces_are_the_range(
            segments in any_segments(),
            (first, second) in (0..=1000_u64, 0..=1000_u64),
            cuts in vec(0..=1000_u64, 0..8),
        ) {
            let total: u64 = segments.iter().map(|segment| segment.length).sum();
            let range = total * first.min(second) / 1000..total * first.max(second) / 1000;
            let parts = parts_of(range.end - range.start, cuts);
            let mut at = 0;
            for piece in pieces(&segments, range.clone(), &parts) {
                prop_assert_eq!(piece.at, at);
                prop_assert!(piece.length > 0);
                let mut place = piece.offset;
                // What the piece moves, by segments.
                let mut start = 0;
                for segment in &segments {
                    let from = start.max(range.start + at as u64);
                    let to = (start + segment.length).min(range.start + (at + piece.length) as u64);
                    if from < to {
                        prop_assert_eq!(piece.region, segment.region);
                        prop_assert_eq!(place, segment.offset + (from - start));
                        place += to - from;
                    }
                    start += segment.length;
                }
                prop_assert_eq!(place, piece.offset + piece.length as u64);
                let inside: Vec<_> = parts.ranges(at, piece.length).collect();
                prop_assert_eq!(inside.iter().map(|(_, range)| range.len()).sum::<usize>(), piece.length);
                match piece.path {
                    Path::Staged => prop_assert!(piece.length <= Piece::STAGED_MAX && inside.len() > 1),
                    Path::Late => prop_assert!(false, "no piece is late before it was refused"),
                    Path::Direct { part } => {
                        prop_assert_eq!(inside.len(), 1);
                        prop_assert_eq!(inside[0].0, part);
                    }
                }
                at += piece.length;
            }
            prop_assert_eq!(at, parts.len());
        }
    }

    fn segment(region: u32, offset: u64, length: u64) -> Segment {
        Segment {
            region,
            offset,
            length,
            crc32c: None,
        }
    }

    /// Segments that were packed are moved by one operation, also into as many small parts.
    #[test]
    fn packed_segments_are_one_piece() {
        let segments: Vec<_> = (0..1024).map(|at| segment(0, at * 8, 8)).collect();
        let whole = pieces(&segments, 0..8192, &Parts::new([8192]));
        assert_eq!(whole.len(), 1);
        assert_eq!(whole[0].path, Path::Direct { part: 0 });
        let scattered = pieces(&segments, 0..8192, &Parts::new([8; 1024]));
        assert_eq!(scattered.len(), 1);
        assert_eq!(scattered[0].path, Path::Staged);
    }

    /// Large memory is not copied, wherever its borders are: one operation for what lies in a row on both sides.
    #[test]
    fn large_parts_are_direct() {
        const MIB: usize = 1 << 20;
        let segments = [segment(0, 0, MIB as u64), segment(1, 0, MIB as u64)];
        let direct = |part| Path::Direct { part };
        let paths = |parts: &[usize]| {
            let parts = Parts::new(parts.iter().copied());
            let pieces = pieces(&segments, 0..2 * MIB as u64, &parts);
            pieces.into_iter().map(|piece| piece.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(&[MIB, 0, MIB]), [direct(0), direct(2)]);
        assert_eq!(paths(&[2 * MIB]), [direct(0), direct(0)]);
        assert_eq!(paths(&[MIB / 2, 3 * MIB / 2]), [direct(0), direct(1), direct(1)]);
        // The small parts go together, and do not spoil the large one after them.
        assert_eq!(paths(&[8, 8, 2 * MIB - 16]), [Path::Staged, direct(2), direct(2)]);
    }
}
