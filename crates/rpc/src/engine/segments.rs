//! Lists of segments that are exposed under one bulk handle.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use ropewalk_fabric::{Buffer, Endpoint, RegionHandle, Withdrawn};

use crate::{
    BulkHandle, BulkHandleError,
    bulk::{Segment, groups},
};

/// Exposes segments, with the checksum of each if there is one.
pub(super) fn expose_list(
    endpoint: &mut Endpoint,
    segments: Vec<Bytes>,
    checksum: impl Fn(&[u8]) -> Option<u32>,
) -> Result<BulkHandle, BulkHandleError> {
    check_count(segments.len())?;
    let lengths: Vec<_> = segments.iter().map(Bytes::len).collect();
    let checksums: Vec<_> = segments.iter().map(|segment| checksum(segment)).collect();
    let mut segments = segments.into_iter();
    expose_groups(endpoint, &lengths, &checksums, |endpoint, lengths| {
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
        endpoint.expose(memory)
    })
}

/// Exposes segments that others may write.
pub(super) fn expose_writable(
    endpoint: &mut Endpoint,
    segments: Vec<Buffer>,
) -> Result<BulkHandle, BulkHandleError> {
    check_count(segments.len())?;
    let lengths: Vec<_> = segments.iter().map(|segment| segment.len()).collect();
    let mut segments = segments.into_iter();
    expose_groups(
        endpoint,
        &lengths,
        &vec![None; lengths.len()],
        |endpoint, lengths| {
            let members = segments.by_ref().take(lengths.len());
            let memory = match lengths {
                [_] => members.last().unwrap_or_default(),
                _ => pack(members, lengths.iter().sum()),
            };
            endpoint.expose_writable(memory)
        },
    )
}

/// Ends the exposure of the segments of the handle that are exposed here.
pub(super) fn withdraw(endpoint: &mut Endpoint, handle: &BulkHandle) -> Vec<Option<Withdrawn>> {
    let regions = handle.regions();
    let mut withdrawn: BTreeMap<u64, Withdrawn> = BTreeMap::new();
    let here = endpoint.address().clone();
    for region in regions.iter().filter(|region| region.address == here) {
        // One that is named twice is withdrawn by the first name.
        if let Some(memory) = endpoint.withdraw(region) {
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

/// Makes the handle of segments that `expose` exposes, a group in one region at a time.
fn expose_groups(
    endpoint: &mut Endpoint,
    lengths: &[usize],
    checksums: &[Option<u32>],
    mut expose: impl FnMut(&mut Endpoint, &[usize]) -> RegionHandle,
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
        regions.push(expose(endpoint, &lengths[group]));
    }
    BulkHandle::new(regions, segments)
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
