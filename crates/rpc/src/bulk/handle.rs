//! The handle of any list of segments.

use std::{fmt, ops::Range, sync::Arc};

use ropewalk_fabric::{Address, RegionHandle};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bulk::{
    pieces::{Run, runs_of},
    wire::Encoded,
};

/// The right to read, and perhaps to write, a list of memory segments, of one process or of several, which it
/// shows as one range of bytes (Mercury, section III-D).
///
/// It is serialisable, travels in the arguments of calls, may be passed on, and works wherever it arrives: the
/// transfers go to the processes that exposed the segments. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct BulkHandle {
    list: Arc<SegmentList>,
}

#[derive(PartialEq, Eq)]
struct SegmentList {
    regions: Vec<RegionHandle>,
    segments: Vec<Segment>,
    /// The same bytes in as few ranges as possible, for transfers.
    runs: Vec<Run>,
    length: u64,
    has_checksums: bool,
}

/// Part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Which of the handle's regions.
    pub(crate) region: u32,
    /// Where in the region it starts.
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) length: u64,
    /// The CRC-32C of its content when it was exposed, if that was asked for.
    pub(crate) crc32c: Option<u32>,
}

/// One of the segments that a [`BulkHandle`] shows.
#[derive(Clone, Copy, Debug)]
pub struct BulkSegment<'a> {
    /// The region that it lies in.
    pub region: &'a RegionHandle,
    /// Where in the region it starts.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// The CRC-32C of its content when it was exposed, if that was asked for.
    pub crc32c: Option<u32>,
}

/// Why there is no such handle.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BulkHandleError {
    /// The range is not inside what the handle shows.
    #[error("bytes {} to {} are asked for of a bulk handle that shows {length}", range.start, range.end)]
    OutOfRange {
        /// The range that was asked for.
        range: Range<u64>,
        /// How many bytes there are.
        length: u64,
    },
    /// A segment is not inside its region, or names none: the handle was made up.
    #[error("segment {segment} of the bulk handle is not inside a region that it names")]
    SegmentAstray {
        /// Which, counted from 0.
        segment: usize,
    },
    /// It names regions that no segment lies in: the handle was made up.
    #[error("the bulk handle names {regions} regions for {segments} segments")]
    RegionsUnused {
        /// How many regions.
        regions: usize,
        /// How many segments.
        segments: usize,
    },
    /// The lengths add up to more than any memory: the handle was made up.
    #[error("the segments of the bulk handle are longer together than a range can be")]
    TooLong,
    /// There are more segments than a handle may have.
    #[error(
        "a bulk handle of {count} segments is asked for, and {} are the most",
        BulkHandle::SEGMENTS_MAX
    )]
    TooManySegments {
        /// How many.
        count: usize,
    },
}

impl BulkHandle {
    /// The most segments that one handle shows.
    pub const SEGMENTS_MAX: usize = 1 << 16;

    /// A handle that shows no bytes.
    pub fn null() -> Self {
        Self::new(Vec::new(), Vec::new()).expect("nothing is within every limit")
    }

    /// A handle that shows what all of `handles` show, one after the other.
    ///
    /// # Errors
    /// If they have more segments together than [`SEGMENTS_MAX`](Self::SEGMENTS_MAX).
    pub fn join<'a>(handles: impl IntoIterator<Item = &'a BulkHandle>) -> Result<Self, BulkHandleError> {
        let (mut regions, mut segments) = (Vec::new(), Vec::new());
        for handle in handles {
            let count = segments.len() + handle.list.segments.len();
            if count > Self::SEGMENTS_MAX {
                return Err(BulkHandleError::TooManySegments { count });
            }
            // There are no more regions than segments, so this fits.
            let first = regions.len() as u32;
            regions.extend_from_slice(&handle.list.regions);
            segments.extend(handle.list.segments.iter().map(|segment| Segment {
                region: first + segment.region,
                ..*segment
            }));
        }
        Self::new(regions, segments)
    }

    /// A handle that shows part of what this one shows. A segment of which it shows a part only goes without
    /// its checksum. It is no restriction: who has it could make a handle of the whole regions out of it.
    ///
    /// # Errors
    /// If the range is not inside what this handle shows.
    pub fn slice(&self, range: Range<u64>) -> Result<Self, BulkHandleError> {
        self.check(&range)?;
        let (mut regions, mut segments) = (Vec::new(), Vec::new());
        // The old and the new number of the region that came last: equal ones come in a row.
        let mut last = None;
        let mut start = 0;
        for segment in &self.list.segments {
            let end = start + segment.length;
            let (from, to) = (start.max(range.start), end.min(range.end));
            if from < to {
                let region = match last {
                    Some((old, new)) if old == segment.region => new,
                    _ => {
                        regions.push(self.list.regions[segment.region as usize].clone());
                        (regions.len() - 1) as u32
                    }
                };
                last = Some((segment.region, region));
                let is_whole = from == start && to == end;
                segments.push(Segment {
                    region,
                    offset: segment.offset + (from - start),
                    length: to - from,
                    crc32c: segment.crc32c.filter(|_| is_whole),
                });
            }
            start = end;
        }
        Self::new(regions, segments)
    }

    /// How many bytes it shows.
    pub fn len(&self) -> u64 {
        self.list.length
    }

    /// Returns true if it shows no bytes.
    pub fn is_empty(&self) -> bool {
        self.list.length == 0
    }

    /// Returns true if all of it may be written.
    pub fn is_writable(&self) -> bool {
        self.is_writable_at(&(0..self.len()))
    }

    /// Its segments, in order.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = BulkSegment<'_>> {
        self.list.segments.iter().map(|segment| BulkSegment {
            region: &self.list.regions[segment.region as usize],
            offset: segment.offset,
            length: segment.length,
            crc32c: segment.crc32c,
        })
    }

    /// A handle of these segments, each of which needs one region at most.
    pub(crate) fn new(regions: Vec<RegionHandle>, segments: Vec<Segment>) -> Result<Self, BulkHandleError> {
        if segments.len() > Self::SEGMENTS_MAX {
            let count = segments.len();
            return Err(BulkHandleError::TooManySegments { count });
        }
        if regions.len() > segments.len() {
            return Err(BulkHandleError::RegionsUnused {
                regions: regions.len(),
                segments: segments.len(),
            });
        }
        let mut length = 0_u64;
        for (number, segment) in segments.iter().enumerate() {
            let region = regions.get(segment.region as usize);
            let end = segment.offset.checked_add(segment.length);
            if !matches!((region, end), (Some(region), Some(end)) if end <= region.length) {
                return Err(BulkHandleError::SegmentAstray { segment: number });
            }
            length = length
                .checked_add(segment.length)
                .ok_or(BulkHandleError::TooLong)?;
        }
        let runs = runs_of(&segments);
        Ok(Self {
            list: Arc::new(SegmentList {
                has_checksums: segments.iter().any(|segment| segment.crc32c.is_some()),
                regions,
                segments,
                runs,
                length,
            }),
        })
    }

    pub(crate) fn check(&self, range: &Range<u64>) -> Result<(), BulkHandleError> {
        if range.start <= range.end && range.end <= self.list.length {
            return Ok(());
        }
        Err(BulkHandleError::OutOfRange {
            range: range.clone(),
            length: self.list.length,
        })
    }

    /// Returns true if this range, which is inside the handle, may be written.
    pub(crate) fn is_writable_at(&self, range: &Range<u64>) -> bool {
        let runs = &self.list.runs;
        let first = runs.partition_point(|run| run.start + run.length <= range.start);
        let mut runs = runs[first..].iter().take_while(|run| run.start < range.end);
        runs.all(|run| self.list.regions[run.region as usize].writable)
    }

    /// Where these bytes lie, if they lie in a row in one region and no checksum is to be checked: most
    /// transfers then are one operation.
    pub(crate) fn single_range(&self, offset: u64, length: usize) -> Option<(&RegionHandle, u64)> {
        let list = &*self.list;
        let run = list
            .runs
            .get(list.runs.partition_point(|run| run.start + run.length <= offset))?;
        let inside = offset - run.start;
        let is_single = length > 0 && length as u64 <= run.length - inside;
        if !is_single || self.has_checksums() {
            return None;
        }
        Some((&list.regions[run.region as usize], run.offset + inside))
    }

    /// Returns true if a segment has a checksum.
    pub(crate) fn has_checksums(&self) -> bool {
        self.list.has_checksums
    }

    /// Who exposes the byte at `at`; `None` behind the end.
    pub(crate) fn peer_at(&self, at: u64) -> Option<&Address> {
        let runs = &self.list.runs;
        let run = runs.get(runs.partition_point(|run| run.start + run.length <= at))?;
        Some(&self.list.regions[run.region as usize].address)
    }

    pub(crate) fn regions(&self) -> &[RegionHandle] {
        &self.list.regions
    }

    pub(crate) fn segment_list(&self) -> &[Segment] {
        &self.list.segments
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.list.runs
    }
}

impl From<RegionHandle> for BulkHandle {
    /// Shows the whole region.
    fn from(region: RegionHandle) -> Self {
        let segment = Segment {
            region: 0,
            offset: 0,
            length: region.length,
            crc32c: None,
        };
        Self::new(vec![region], vec![segment]).expect("a region is one segment inside itself")
    }
}

impl Default for BulkHandle {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Debug for BulkHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkHandle")
            .field("regions", &self.list.regions)
            .field("segments", &self.list.segments.len())
            .field("length", &self.list.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn region(number: u64, length: u64) -> RegionHandle {
        RegionHandle {
            address: "tcp://127.0.0.1:4711".parse().unwrap(),
            region: number,
            token: u128::from(number) << 100,
            length,
            writable: number.is_multiple_of(2),
        }
    }

    fn any_handle() -> impl Strategy<Value = BulkHandle> {
        let segment = (0..4_u32, 0..50_u64, 0..50_u64, any::<Option<u32>>());
        let segment = segment.prop_map(|(region, offset, length, crc32c)| Segment {
            region,
            offset,
            length,
            crc32c,
        });
        let regions = || (0..4).map(|number| region(number, 100)).collect();
        let handle =
            vec(segment, 4..20).prop_map(move |segments| BulkHandle::new(regions(), segments).unwrap());
        prop_oneof![1 => Just(BulkHandle::null()), 9 => handle]
    }

    /// The bytes that the handle shows, each by its region and place.
    fn shown(handle: &BulkHandle) -> Vec<(u64, u64)> {
        let segments = handle.segments();
        let bytes = segments.flat_map(|segment| {
            (0..segment.length).map(move |at| (segment.region.region, segment.offset + at))
        });
        bytes.collect()
    }

    proptest! {
        /// A handle survives being passed on.
        #[test]
        fn handles_are_passed_on(handle in any_handle()) {
            let encoded = postcard::to_allocvec(&handle).unwrap();
            prop_assert_eq!(postcard::from_bytes::<BulkHandle>(&encoded).unwrap(), handle);
        }

        /// A slice shows exactly the bytes of its range, and a range that is not inside is refused.
        #[test]
        fn slices_show_their_range(handle in any_handle(), start in 0..1200_u64, length in 0..1200_u64) {
            let range = start..start + length;
            match handle.slice(range.clone()) {
                Ok(slice) => {
                    prop_assert_eq!(slice.len(), length);
                    let whole = shown(&handle);
                    prop_assert_eq!(&shown(&slice)[..], &whole[start as usize..(start + length) as usize]);
                    prop_assert!(postcard::to_allocvec(&slice).is_ok());
                }
                Err(error) => {
                    prop_assert!(range.end > handle.len());
                    prop_assert_eq!(error, BulkHandleError::OutOfRange { range, length: handle.len() });
                }
            }
        }

        /// A joined handle shows the bytes of its parts in a row, and a slice of it the bytes of one part.
        #[test]
        fn joined_handles_show_all(first in any_handle(), second in any_handle(), third in any_handle()) {
            let joined = BulkHandle::join([&first, &second, &third]).unwrap();
            prop_assert_eq!(shown(&joined), [shown(&first), shown(&second), shown(&third)].concat());
            let middle = first.len()..first.len() + second.len();
            prop_assert_eq!(shown(&joined.slice(middle).unwrap()), shown(&second));
        }
    }

    /// A checksum is kept by the slices that show all of its segment.
    #[test]
    fn checksums_are_of_whole_segments() {
        let segment = Segment {
            region: 0,
            offset: 10,
            length: 20,
            crc32c: Some(7),
        };
        let handle = BulkHandle::new(vec![region(0, 100)], vec![segment; 3]).unwrap();
        let slice = handle.slice(5..45).unwrap();
        let checksums: Vec<_> = slice.segments().map(|segment| segment.crc32c).collect();
        assert_eq!(checksums, [None, Some(7), None]);
    }

    /// A handle may be written if all of its bytes may; what it prints shows no token.
    #[test]
    fn permissions_are_of_all_segments() {
        let [readable, writable] = [region(1, 5), region(2, 5)].map(BulkHandle::from);
        let both = BulkHandle::join([&readable, &writable]).unwrap();
        assert!(writable.is_writable() && !readable.is_writable() && !both.is_writable());
        assert!(both.slice(5..10).unwrap().is_writable());
        assert!(BulkHandle::null().is_writable() && BulkHandle::null().is_empty());
        assert!(!format!("{both:?}").contains("token"));
    }

    /// Handles that nobody can have made are refused: segments outside their regions, or of regions that are
    /// not named, or without end, or too many.
    #[test]
    fn made_up_handles_are_refused() {
        let with = |segment: Segment, count| BulkHandle::new(vec![region(0, u64::MAX)], vec![segment; count]);
        let unused = BulkHandle::new(vec![region(0, 1)], Vec::new());
        assert!(matches!(unused, Err(BulkHandleError::RegionsUnused { .. })));
        let inside = Segment {
            region: 0,
            offset: 0,
            length: u64::MAX,
            crc32c: None,
        };
        assert!(with(inside, 1).is_ok());
        assert_eq!(with(inside, 2).err(), Some(BulkHandleError::TooLong));
        for astray in [Segment { region: 1, ..inside }, Segment { offset: 1, ..inside }] {
            let refused = Some(BulkHandleError::SegmentAstray { segment: 0 });
            assert_eq!(with(astray, 1).err(), refused);
        }
        let count = BulkHandle::SEGMENTS_MAX + 1;
        let empty = Segment { length: 0, ..inside };
        assert_eq!(
            with(empty, count).err(),
            Some(BulkHandleError::TooManySegments { count })
        );
        let most = with(empty, count - 1).unwrap();
        let refused = BulkHandle::join([&most, &with(empty, 1).unwrap()]);
        assert_eq!(refused, Err(BulkHandleError::TooManySegments { count }));
    }
}
