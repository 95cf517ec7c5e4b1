//! The course of a copy: its pieces, how far they have to go, and how long it rests between them.
//!
//! The root of the reduction merges contributions from their first byte on, and what it has merged is not needed again
//! unless the reduction can begin anew. So a copy goes from the last byte on, and is whole when it meets the root.
//!
//! The copy and the reduction share links. They meet after the same time however they share them; what is left of the
//! reduction then takes the longer, the larger the share of the copy was. So a copy rests between its pieces as soon
//! as the reduction has begun, and its pieces are short: chunks wait behind them on each host that they pass. A copy
//! that is waited for does neither.

use std::{ops::Range, time::Duration};

#[derive(Debug)]
pub(super) struct Course {
    length: usize,
    /// The bytes before this are still to come.
    end: usize,
    /// Nobody needs the bytes before this.
    settled: usize,
    /// It is time to ask again how many those are when no more bytes than these are to come.
    ask_at: usize,
    piece_bytes: usize,
    /// The reduction had a plan when the scheduler answered last.
    has_begun: bool,
    /// Its call waits for it, or there is no other copy.
    is_urgent: bool,
}

impl Course {
    const PIECE_BYTES_MIN: usize = 32 << 10;
    const PIECE_BYTES_MAX: usize = 256 << 10;
    /// A piece that takes less is too short to use the link, and one that takes more keeps chunks waiting.
    const PIECE_TIMES: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(4);

    /// The copy of so many bytes of which those before `begin` are not there.
    pub(super) fn new(begin: usize, length: usize, is_urgent: bool) -> Self {
        let first = 2 * Self::PIECE_BYTES_MIN;
        Self {
            length,
            end: length,
            settled: begin.min(length),
            // A short copy is made before there is an answer.
            ask_at: if length > first { length } else { 0 },
            piece_bytes: first,
            has_begun: false,
            is_urgent,
        }
    }

    /// The bytes before this are still to come.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Says if it is time to ask how many bytes nobody needs.
    pub(super) fn has_to_ask(&self) -> bool {
        self.settled < self.end && self.end <= self.ask_at
    }

    /// So many bytes at the beginning nobody needs; none is known if the reduction has not begun.
    ///
    /// It is asked again when a quarter of the way to there is done, and more often before the reduction has begun.
    pub(super) fn note_settled(&mut self, bytes: Option<u64>) {
        self.has_begun = bytes.is_some();
        let bytes = usize::try_from(bytes.unwrap_or_default()).unwrap_or(self.length);
        self.settled = self.settled.max(bytes.min(self.length));
        let left = self.end.saturating_sub(self.settled);
        let pause = if self.has_begun {
            left / 4
        } else {
            self.length / 16
        };
        self.ask_at = self.end.saturating_sub(pause.max(self.piece_bytes));
    }

    /// The next piece; none if all have come that are needed.
    pub(super) fn next_piece(&self) -> Option<Range<usize>> {
        let begin = self.end.saturating_sub(self.piece_bytes).max(self.settled);
        (begin < self.end).then_some(begin..self.end)
    }

    /// The piece that was next has come, after this time. Returns how long to rest.
    pub(super) fn note_piece(&mut self, piece: &Range<usize>, took: Duration) -> Duration {
        self.end = piece.start;
        if self.is_urgent || took < Self::PIECE_TIMES.start {
            self.piece_bytes = (self.piece_bytes * 2).min(Self::PIECE_BYTES_MAX);
        } else if took > Self::PIECE_TIMES.end {
            self.piece_bytes = (self.piece_bytes / 2).max(Self::PIECE_BYTES_MIN);
        }
        match self.has_begun && !self.is_urgent {
            true => took,
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 10 << 20;
    const FAST: Duration = Duration::from_micros(100);

    /// The pieces of a copy, if the root has merged so much after each.
    fn pieces(course: &mut Course, mut settled: impl FnMut() -> Option<u64>) -> Vec<Range<usize>> {
        let mut pieces = Vec::new();
        loop {
            if course.has_to_ask() {
                course.note_settled(settled());
            }
            let Some(piece) = course.next_piece() else {
                return pieces;
            };
            course.note_piece(&piece, FAST);
            pieces.push(piece);
        }
    }

    /// A copy of a reduction that does not begin, or whose root may begin anew, is of all bytes, each once.
    #[test]
    fn all_is_copied_if_nothing_is_settled() {
        for settled in [None, Some(0)] {
            let mut course = Course::new(0, LENGTH, false);
            let pieces = pieces(&mut course, || settled);
            assert_eq!(pieces.first().map(|piece| piece.end), Some(LENGTH));
            assert!(pieces.windows(2).all(|two| two[0].start == two[1].end));
            assert_eq!(
                (course.end(), pieces.last().map(|piece| piece.start)),
                (0, Some(0))
            );
        }
    }

    /// A copy ends where the root is, or where what it is made from begins, and asks a few dozen times until then.
    #[test]
    fn a_copy_meets_the_root() {
        let (mut merged, mut asked) = (0, 0);
        let mut course = Course::new(0, LENGTH, false);
        pieces(&mut course, || {
            asked += 1;
            merged += 1 << 20;
            Some(merged)
        });
        assert!(
            course.end() as u64 <= merged && course.end() > LENGTH / 4,
            "{course:?}"
        );
        assert!(asked < 20, "{asked}");
        let mut part = Course::new(1000, LENGTH, true);
        pieces(&mut part, || None);
        assert_eq!(part.end(), 1000);
        assert_eq!(Course::new(0, 0, false).next_piece(), None);
    }

    /// A copy rests as long as its last piece took, once the reduction has begun, if nobody waits for it.
    #[test]
    fn a_copy_rests_while_the_root_works() {
        for (is_urgent, settled, rest) in [
            (false, None, Duration::ZERO),
            (false, Some(0), FAST),
            (true, Some(0), Duration::ZERO),
        ] {
            let mut course = Course::new(0, LENGTH, is_urgent);
            course.note_settled(settled);
            let piece = course.next_piece().unwrap();
            assert_eq!(course.note_piece(&piece, FAST), rest);
        }
    }

    /// Pieces grow over fast links, and shrink over slow ones.
    #[test]
    fn pieces_follow_the_link() {
        let mut course = Course::new(0, 100 * LENGTH, false);
        course.note_settled(Some(0));
        for (took, bytes) in [
            (FAST, Course::PIECE_BYTES_MAX),
            (Duration::from_secs(1), Course::PIECE_BYTES_MIN),
        ] {
            for _ in 0..10 {
                let piece = course.next_piece().unwrap();
                course.note_piece(&piece, took);
            }
            assert_eq!(course.next_piece().unwrap().len(), bytes);
        }
    }
}
