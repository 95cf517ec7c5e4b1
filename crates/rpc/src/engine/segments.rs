//! What an engine does to expose lists of segments.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use ropewalk_fabric::{Buffer, RegionHandle, Withdrawn};

use crate::{
    BulkHandle, BulkHandleError, Engine,
    bulk::{Segment, groups},
};

impl Engine {
    /// Lets peers that are given the handle pull the segments, which it shows as one range, until they are
    /// withdrawn. Small neighbours are copied into one region, so that they can be moved at once.
    ///
    /// # Errors
    /// If there are more than [`BulkHandle::SEGMENTS_MAX`].
    pub fn expose_segments(&mut self, segments: Vec<Bytes>) -> Result<BulkHandle, BulkHandleError> {
        self.expose_list(segments, |_| None)
    }

    /// As [`expose_segments`](Self::expose_segments), with a CRC-32C of each segment in the handle: a pull of the
    /// whole segment is then checked from end to end.
    ///
    /// # Errors
    /// As for [`expose_segments`](Self::expose_segments).
    pub fn expose_segments_checked(&mut self, segments: Vec<Bytes>) -> Result<BulkHandle, BulkHandleError> {
        self.expose_list(segments, |segment| Some(crc32c::crc32c(segment)))
    }

    /// Lets peers that are given the handle pull from and push into the segments, which it shows as one range,
    /// until they are withdrawn. Small neighbours are copied into one region, and back when they are
    /// withdrawn.
    ///
    /// # Errors
    /// As for [`expose_segments`](Self::expose_segments).
    pub fn expose_segments_writable(&mut self, segments: Vec<Buffer>) -> Result<BulkHandle, BulkHandleError> {
        check_count(segments.len())?;
        let lengths: Vec<_> = segments.iter().map(|segment| segment.len()).collect();
        let mut segments = segments.into_iter();
        self.expose_groups(&lengths, &vec![None; lengths.len()], |engine, lengths| {
            let members = segments.by_ref().take(lengths.len());
            let memory = match lengths {
                [_] => members.last().unwrap_or_default(),
                _ => pack(members, lengths.iter().sum()),
            };
            engine.expose_writable(memory)
        })
    }

    /// Ends the exposure of all segments of the handle that are exposed here, and gives the memory of each back,
    /// in order: of a slice what it shows. `None` stands for one that is not exposed here.
    pub fn withdraw_bulk(&mut self, handle: &BulkHandle) -> Vec<Option<Withdrawn>> {
        let regions = handle.regions();
        let mut withdrawn: BTreeMap<u64, Withdrawn> = BTreeMap::new();
        let here = self.address().clone();
        for region in regions.iter().filter(|region| region.address == here) {
            // One that is named twice is withdrawn by the first name.
            if let Some(memory) = self.endpoint.withdraw(region) {
                withdrawn.insert(region.region, memory);
            }
        }
        let mut users: BTreeMap<u64, usize> = BTreeMap::new();
        for segment in handle.segments() {
            *users.entry(segment.region.region).or_default() += 1;
        }
        let memory = handle.segments().map(|segment| {
            if segment.region.address != here {
                return None;
            }
            let memory = withdrawn.get_mut(&segment.region.region)?;
            let length = match memory {
                Withdrawn::Immutable(bytes) => bytes.len(),
                Withdrawn::Writable(buffer) => buffer.len(),
            };
            let (start, end) = (segment.offset, segment.offset + segment.length);
            // The lengths are those of the handle, which may have been elsewhere.
            let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
            if range.end > length {
                return None;
            }
            let is_shared = users[&segment.region.region] > 1;
            Some(match memory {
                Withdrawn::Immutable(bytes) => Withdrawn::Immutable(bytes.slice(range)),
                Withdrawn::Writable(buffer) if range.len() == length && !is_shared => {
                    Withdrawn::Writable(std::mem::take(buffer))
                }
                Withdrawn::Writable(buffer) => Withdrawn::Writable(Buffer::copy_of(&buffer[range])),
            })
        });
        memory.collect()
    }

    fn expose_list(
        &mut self,
        segments: Vec<Bytes>,
        checksum: impl Fn(&[u8]) -> Option<u32>,
    ) -> Result<BulkHandle, BulkHandleError> {
        check_count(segments.len())?;
        let lengths: Vec<_> = segments.iter().map(Bytes::len).collect();
        let checksums: Vec<_> = segments.iter().map(|segment| checksum(segment)).collect();
        let mut segments = segments.into_iter();
        self.expose_groups(&lengths, &checksums, |engine, lengths| {
            let members = segments.by_ref().take(lengths.len());
            let memory = match lengths {
                [_] => members.last().unwrap_or_default(),
                _ => members
                    .fold(
                        BytesMut::with_capacity(lengths.iter().sum()),
                        |mut packed, member| {
                            packed.extend_from_slice(&member);
                            packed
                        },
                    )
                    .freeze(),
            };
            engine.expose(memory)
        })
    }

    /// Makes the handle of segments that `expose` exposes, a group in one region at a time.
    fn expose_groups(
        &mut self,
        lengths: &[usize],
        checksums: &[Option<u32>],
        mut expose: impl FnMut(&mut Self, &[usize]) -> RegionHandle,
    ) -> Result<BulkHandle, BulkHandleError> {
        let mut regions = Vec::new();
        let mut segments = Vec::with_capacity(lengths.len());
        for group in groups(lengths) {
            let mut offset = 0;
            for member in group.clone() {
                segments.push(Segment {
                    // No more regions than segments, whose number was checked.
                    region: regions.len() as u32,
                    offset,
                    length: lengths[member] as u64,
                    crc32c: checksums[member],
                });
                offset += lengths[member] as u64;
            }
            regions.push(expose(self, &lengths[group]));
        }
        BulkHandle::new(regions, segments)
    }
}

/// One buffer with the content of all of them.
fn pack(members: impl Iterator<Item = Buffer>, length: usize) -> Buffer {
    let mut packed = Buffer::zeroed(length);
    let mut at = 0;
    for member in members {
        packed[at..at + member.len()].copy_from_slice(&member);
        at += member.len();
    }
    packed
}

fn check_count(count: usize) -> Result<(), BulkHandleError> {
    if count > BulkHandle::SEGMENTS_MAX {
        return Err(BulkHandleError::TooManySegments { count });
    }
    Ok(())
}
