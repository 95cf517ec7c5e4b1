//! The checksums of segments, found again in what came of them.

use std::ops::Range;

use crate::{BulkHandle, TransferError};

/// Checks the segments of a handle that lie wholly inside a range, whose bytes it is given in order.
#[derive(Debug)]
pub(crate) struct Verifier {
    handle: BulkHandle,
    /// The next byte, in what the handle shows.
    next: u64,
    /// The segment that it lies in, and where that starts.
    segment: usize,
    start: u64,
    /// Of the segment up to the next byte, if the range began before the segment.
    crc32c: Option<u32>,
}

/// The bytes of a segment are not those that were exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumMismatch {
    /// Which of the handle's segments.
    pub(crate) segment: usize,
    /// The CRC-32C of the bytes that were exposed.
    pub(crate) expected: u32,
    /// The CRC-32C of the bytes that came.
    pub(crate) found: u32,
}

impl ChecksumMismatch {
    /// As an error of a transfer of this handle.
    pub(crate) fn into_error(self, handle: &BulkHandle) -> TransferError {
        let region = handle.segment_list()[self.segment].region;
        TransferError::ChecksumMismatch {
            peer: handle.regions()[region as usize].address.clone(),
            segment: self.segment,
            expected: self.expected,
            found: self.found,
        }
    }
}

impl Verifier {
    /// For the bytes of this range; `None` if there is nothing to check.
    pub(crate) fn new(handle: &BulkHandle, range: Range<u64>) -> Option<Self> {
        if !handle.has_checksums() {
            return None;
        }
        let mut verifier = Self {
            handle: handle.clone(),
            next: range.start,
            segment: 0,
            start: 0,
            crc32c: None,
        };
        let segments = handle.segment_list();
        while let Some(segment) = segments.get(verifier.segment)
            && verifier.start + segment.length <= range.start
            && (segment.length > 0 || verifier.start < range.start)
        {
            verifier.start += segment.length;
            verifier.segment += 1;
        }
        if verifier.start == range.start {
            verifier.crc32c = Some(0);
        }
        Some(verifier)
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// If a segment ends in them whose checksum is wrong.
    pub(crate) fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), ChecksumMismatch> {
        while let Some(segment) = self.handle.segment_list().get(self.segment) {
            let end = self.start + segment.length;
            // At most what there is of bytes, so it fits a usize.
            let taken = (end - self.next).min(bytes.len() as u64) as usize;
            let (inside, rest) = bytes.split_at(taken);
            if let (Some(crc32c), Some(_)) = (&mut self.crc32c, segment.crc32c) {
                *crc32c = crc32c::crc32c_append(*crc32c, inside);
            }
            self.next += taken as u64;
            bytes = rest;
            if self.next < end {
                break;
            }
            if let (Some(found), Some(expected)) = (self.crc32c, segment.crc32c)
                && found != expected
            {
                return Err(ChecksumMismatch {
                    segment: self.segment,
                    expected,
                    found,
                });
            }
            self.segment += 1;
            self.start = end;
            self.crc32c = Some(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use ropewalk_fabric::RegionHandle;

    use super::*;
    use crate::bulk::handle::Segment;

    fn handle(content: &[u8], lengths: &[usize]) -> BulkHandle {
        let region = RegionHandle {
            address: "tcp://127.0.0.1:4711".parse().unwrap(),
            region: 0,
            token: 0,
            length: content.len() as u64,
            writable: false,
        };
        let mut offset = 0;
        let segments = lengths.iter().enumerate().map(|(number, &length)| {
            offset += length;
            Segment {
                region: 0,
                offset: (offset - length) as u64,
                length: length as u64,
                // Every third has none.
                crc32c: (number % 3 != 2).then(|| crc32c::crc32c(&content[offset - length..offset])),
            }
        });
        BulkHandle::new(vec![region], segments.collect()).unwrap()
    }

    proptest! {
        /// Right bytes pass, in whatever portions; one wrong bit is found exactly if its segment has a checksum
        /// and lies wholly inside the range, and the segment is named.
        #[test]
        fn one_wrong_bit_is_found(
            lengths in vec(0..30_usize, 1..10),
            (first, second) in (0..=1000_usize, 0..=1000_usize),
            portion in 1..40_usize,
            wrong in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let total = lengths.iter().sum::<usize>();
            let mut content: Vec<u8> = (0..total).map(|at| (at * 37) as u8).collect();
            let handle = handle(&content, &lengths);
            let range = total * first.min(second) / 1000..total * first.max(second) / 1000;
            let verify = |content: &[u8]| {
                let mut verifier = Verifier::new(&handle, range.start as u64..range.end as u64).unwrap();
                content[range.clone()].chunks(portion).try_for_each(|bytes| verifier.handle_bytes(bytes))
            };
            prop_assert_eq!(verify(&content), Ok(()));
            prop_assume!(total > 0);
            let wrong = wrong.index(total);
            content[wrong] ^= 1 << bit;
            let mut start = 0;
            let segment = lengths.iter().position(|length| {
                start += length;
                wrong < start
            });
            let segment = segment.unwrap();
            let whole = start - lengths[segment]..start;
            let is_checked = segment % 3 != 2 && range.start <= whole.start && whole.end <= range.end;
            let found = verify(&content).err().map(|mismatch| mismatch.segment);
            prop_assert_eq!(found, is_checked.then_some(segment));
        }
    }
}
