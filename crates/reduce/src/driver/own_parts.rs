//! The parts of a result's memory that nothing was folded into.

use std::ops::Range;

/// For each page of memory that a caller lent for a result: it holds the caller's contribution, since nothing was
/// written there.
///
/// A chunk may be folded more than once, since plans change. Only the first time its memory is what the caller had left
/// there.
#[derive(Debug, Default)]
pub(super) struct OwnParts(Vec<bool>);

impl OwnParts {
    /// Chunks of any length but the shortest are whole pages.
    const PAGE: u64 = 4096;

    /// Memory of so many bytes in which nothing was written.
    pub(super) fn all(bytes: usize) -> Self {
        Self(vec![true; bytes.div_ceil(Self::PAGE as usize)])
    }

    /// Says if nothing was written to the pages of a range. From now on something was.
    pub(super) fn take(&mut self, range: &Range<u64>) -> bool {
        let pages = (range.start / Self::PAGE) as usize..range.end.div_ceil(Self::PAGE) as usize;
        let Some(pages) = self.0.get_mut(pages) else {
            return false;
        };
        let are_own = pages.iter().all(|is_own| *is_own);
        pages.fill(false);
        are_own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part is the caller's once, and not if one beside it was written in one of its pages.
    #[test]
    fn parts_are_taken_once() {
        let mut parts = OwnParts::all(4 * 4096 + 10);
        assert!(parts.take(&(4096..8192)));
        assert!(!parts.take(&(4096..8192)));
        assert!(parts.take(&(0..100)));
        assert!(!parts.take(&(100..4096)));
        assert!(!parts.take(&(8000..9000)));
        assert!(!parts.take(&(8192..12288)));
        assert!(parts.take(&(4 * 4096..4 * 4096 + 10)));
        assert!(!parts.take(&(4 * 4096..6 * 4096)));
        assert!(!OwnParts::default().take(&(0..1)));
    }
}
