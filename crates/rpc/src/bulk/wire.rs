//! How a bulk handle is encoded: addresses and tokens once, however many segments there are.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use ropewalk_fabric::{Address, RegionHandle};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

use crate::bulk::{BulkHandle, BulkHandleError, handle::Segment};

const MAX: usize = BulkHandle::SEGMENTS_MAX;

/// A bulk handle as it is sent: nothing of it is to be believed.
#[derive(Serialize, Deserialize)]
pub(crate) struct Encoded {
    origins: Bounded<Address>,
    regions: Bounded<EncodedRegion>,
    segments: Bounded<EncodedSegment>,
}

#[derive(Serialize, Deserialize)]
struct EncodedRegion {
    origin: u32,
    region: u64,
    /// Random, so that a fixed width is shorter than a variable one.
    token: [u8; 16],
    length: u64,
    writable: bool,
}

#[derive(Serialize, Deserialize)]
struct EncodedSegment {
    region: u32,
    offset: u64,
    length: u64,
    crc32c: Option<u32>,
}

/// A list that is not read further than a handle may be long.
struct Bounded<T>(Vec<T>);

impl From<BulkHandle> for Encoded {
    fn from(handle: BulkHandle) -> Self {
        let mut origins: Vec<Address> = Vec::new();
        let mut numbers = BTreeMap::new();
        let regions = handle.regions().iter().map(|region| {
            let origin = *numbers.entry(&region.address).or_insert_with(|| {
                origins.push(region.address.clone());
                (origins.len() - 1) as u32
            });
            EncodedRegion {
                origin,
                region: region.region,
                token: region.token.to_le_bytes(),
                length: region.length,
                writable: region.writable,
            }
        });
        let regions = Bounded(regions.collect());
        let segments = handle.segment_list().iter().map(|segment| EncodedSegment {
            region: segment.region,
            offset: segment.offset,
            length: segment.length,
            crc32c: segment.crc32c,
        });
        Self {
            regions,
            segments: Bounded(segments.collect()),
            origins: Bounded(origins),
        }
    }
}

impl TryFrom<Encoded> for BulkHandle {
    type Error = BulkHandleError;

    fn try_from(encoded: Encoded) -> Result<Self, BulkHandleError> {
        let origins = encoded.origins.0;
        let regions = encoded.regions.0.into_iter().map(|region| {
            Some(RegionHandle {
                address: origins.get(region.origin as usize)?.clone(),
                region: region.region,
                token: u128::from_le_bytes(region.token),
                length: region.length,
                writable: region.writable,
            })
        });
        // A region of no origin is none, and with it all segments of the handle are astray.
        let regions = regions.collect::<Option<_>>().unwrap_or_default();
        let segments = encoded.segments.0.into_iter().map(|segment| Segment {
            region: segment.region,
            offset: segment.offset,
            length: segment.length,
            crc32c: segment.crc32c,
        });
        Self::new(regions, segments.collect())
    }
}

impl<T: Serialize> Serialize for Bounded<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedVisitor(PhantomData))
    }
}

struct BoundedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedVisitor<T> {
    type Value = Bounded<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} parts of a bulk handle")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        // The announced length is the sender's word: memory is taken for what comes.
        let mut list = Vec::new();
        while let Some(part) = parts.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            list.push(part);
        }
        Ok(Bounded(list))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// Any bytes, and handles with some bytes changed, are refused or are a handle like any other: it shows what
        /// its segments have, and is the same when it is passed on.
        #[test]
        fn foreign_bytes_are_refused_or_sound(
            noise in vec(any::<u8>(), 0..200),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let region = |number| RegionHandle {
                address: "tcp://127.0.0.1:4711".parse().unwrap(),
                region: number,
                token: 1 << 127,
                length: 1000,
                writable: number == 1,
            };
            let segment = |at: u64| Segment {
                region: at as u32 % 2,
                offset: at * 100,
                length: 50,
                crc32c: Some(7).filter(|_| at == 3),
            };
            let handle = BulkHandle::new(vec![region(1), region(2)], (0..5).map(segment).collect()).unwrap();
            let mut changed = postcard::to_allocvec(&handle).unwrap();
            for (place, byte) in changes {
                let place = place.index(changed.len());
                changed[place] = byte;
            }
            for bytes in [noise, changed] {
                let Ok(handle) = postcard::from_bytes::<BulkHandle>(&bytes) else {
                    continue;
                };
                prop_assert_eq!(handle.segments().map(|segment| segment.length).sum::<u64>(), handle.len());
                prop_assert!(handle.segments().all(|segment| segment.offset + segment.length
                    <= segment.region.length));
                let again = postcard::to_allocvec(&handle).unwrap();
                prop_assert_eq!(postcard::from_bytes::<BulkHandle>(&again).unwrap(), handle);
            }
        }
    }

    /// Small segments cost a few bytes each in an argument: their region and its origin are named once.
    #[test]
    fn encoding_is_compact() {
        let region = RegionHandle {
            address: "tcp://127.0.0.1:4711".parse().unwrap(),
            region: 1,
            token: u128::MAX,
            length: 8192,
            writable: false,
        };
        let segment = |at: u64| Segment {
            region: 0,
            offset: at * 8,
            length: 8,
            crc32c: None,
        };
        let handle = BulkHandle::new(vec![region], (0..1024).map(segment).collect()).unwrap();
        assert!(postcard::to_allocvec(&handle).unwrap().len() < 6 * 1024);
    }

    /// Lists longer than a handle may have are refused while they are read, and so is a region of no origin.
    #[test]
    fn foreign_bytes_are_bounded() {
        let segment = || EncodedSegment {
            region: 0,
            offset: 0,
            length: 0,
            crc32c: None,
        };
        let region = || EncodedRegion {
            origin: 0,
            region: 0,
            token: [0; 16],
            length: 1,
            writable: false,
        };
        let origin = || "tcp://127.0.0.1:1".parse().unwrap();
        for (origins, segments, accepted) in [(1, MAX, true), (1, MAX + 1, false), (0, 1, false)] {
            let encoded = Encoded {
                origins: Bounded((0..origins).map(|_| origin()).collect()),
                regions: Bounded(vec![region()]),
                segments: Bounded((0..segments).map(|_| segment()).collect()),
            };
            let bytes = postcard::to_allocvec(&encoded).unwrap();
            assert_eq!(postcard::from_bytes::<BulkHandle>(&bytes).is_ok(), accepted);
        }
    }
}
