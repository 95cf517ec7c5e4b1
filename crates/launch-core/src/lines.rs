//! Cutting what ranks write into whole lines, so that the lines of many ranks do not mix.

/// The longest line of a rank that stays in one piece, in bytes. A longer one comes in pieces, each but the last longer
/// than this.
pub const OUTPUT_LINE_SIZE_MAX: usize = 2 << 20;

/// Collects a stream and gives it out in runs of whole lines.
#[derive(Debug, Default)]
pub struct WholeLines {
    /// Elsewhere, since there are two streams of each rank, and most have no line that is begun.
    begun: Option<Box<Begun>>,
}

/// The beginning of a line.
#[derive(Debug, Default)]
struct Begun {
    bytes: Vec<u8>,
    /// How much of it has no end of a line.
    searched: usize,
}

impl WholeLines {
    const LINE_SIZE_MAX: usize = OUTPUT_LINE_SIZE_MAX;

    /// Takes the next bytes of the stream; returns the whole lines that there are now. A line that is longer
    /// than [`OUTPUT_LINE_SIZE_MAX`] comes out in pieces, each but the last longer than that.
    pub fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut lines = self.begun.take().map_or_else(Begun::default, |begun| *begun);
        lines.bytes.extend_from_slice(bytes);
        let unsearched = &lines.bytes[lines.searched..];
        let end = match unsearched.iter().rposition(|&byte| byte == b'\n') {
            Some(last) => lines.searched + last + 1,
            None if lines.bytes.len() > Self::LINE_SIZE_MAX => lines.bytes.len(),
            None => {
                lines.searched = lines.bytes.len();
                self.begun = Some(Box::new(lines));
                return None;
            }
        };
        let bytes = lines.bytes.split_off(end);
        if !bytes.is_empty() {
            let searched = bytes.len();
            self.begun = Some(Box::new(Begun { bytes, searched }));
        }
        Some(lines.bytes)
    }

    /// The rest of a stream that has ended: a line without its end.
    pub fn finish(self) -> Option<Vec<u8>> {
        self.begun
            .map(|begun| begun.bytes)
            .filter(|bytes| !bytes.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A line beyond the bound is not collected for ever.
    #[test]
    fn long_lines_are_bounded() {
        let mut lines = WholeLines::default();
        assert_eq!(lines.push(&vec![b'x'; WholeLines::LINE_SIZE_MAX]), None);
        let piece = lines.push(b"x").unwrap();
        assert_eq!(piece.len(), WholeLines::LINE_SIZE_MAX + 1);
        assert_eq!(lines.push(b"y\n"), Some(b"y\n".to_vec()));
        assert_eq!(lines.finish(), None);
    }

    proptest! {
        /// However the stream arrives, its bytes come out in order, and cut only at line ends.
        #[test]
        fn lines_stay_whole(pieces in proptest::collection::vec("[a-z\n]{0,9}", 0..30)) {
            let mut lines = WholeLines::default();
            let mut out = Vec::new();
            for piece in &pieces {
                if let Some(run) = lines.push(piece.as_bytes()) {
                    prop_assert!(run.ends_with(b"\n"));
                    out.extend(run);
                }
            }
            out.extend(lines.finish().unwrap_or_default());
            prop_assert_eq!(out, pieces.concat().into_bytes());
        }
    }
}
