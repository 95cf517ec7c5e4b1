//! The memory that an endpoint exposes, and the one place where access to it is decided.

use std::collections::BTreeMap;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::{Address, Buffer, RegionHandle};

/// The exposed regions of one endpoint.
///
/// A region's token is the first half of HMAC-SHA256 of its number under a secret of the endpoint, so that it
/// cannot be guessed, and numbers are never used twice, so that a handle dies with its region.
pub struct RegionTable {
    token_secret: [u8; 32],
    regions: BTreeMap<u64, Region>,
    next: u64,
}

struct Region {
    token: u128,
    memory: Memory,
}

enum Memory {
    /// Nobody writes it while a clone of it lives.
    Immutable(Bytes),
    /// The table is its only owner.
    Writable(Buffer),
}

/// Memory that was exposed, back in its owner's hands.
#[derive(Debug)]
pub enum Withdrawn {
    /// The memory given to `expose`.
    Immutable(Bytes),
    /// The memory given to `expose_writable`, with what peers wrote into it.
    Writable(Buffer),
}

/// Where the memory of a region is.
#[derive(Clone, Copy, Debug)]
pub struct RegionMemory<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// True if peers may write it.
    pub writable: bool,
}

/// A claim to part of a region, as it comes from a peer: nothing of it is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The number of the region.
    pub region: u64,
    /// The proof that the claimant was given the handle.
    pub token: u128,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// Why a one-sided operation was refused by the endpoint whose memory it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The peer serves as many transfers for us as it is willing to; try again later.
    #[error("the peer serves too many transfers of this endpoint already")]
    Busy,
    /// The range is not inside the region.
    #[error("the range is not inside the region")]
    OutOfRange,
    /// The region was exposed for reading only.
    #[error("the region may be read, not written")]
    ReadOnly,
    /// The handle is of no region that is exposed there: withdrawn, of an earlier process, or forged.
    #[error("the handle is of no region that is exposed there (any longer)")]
    Unknown,
}

impl RegionTable {
    /// A table without regions, whose tokens are made with this secret.
    pub fn new(token_secret: [u8; 32]) -> Self {
        Self {
            token_secret,
            regions: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds a region of the endpoint at `address` that may be read.
    pub fn expose(&mut self, address: &Address, memory: Bytes) -> RegionHandle {
        let length = memory.len() as u64;
        self.insert(address, Memory::Immutable(memory), length, false)
    }

    /// Adds a region of the endpoint at `address` that may be read and written.
    pub fn expose_writable(&mut self, address: &Address, memory: Buffer) -> RegionHandle {
        let length = memory.len() as u64;
        self.insert(address, Memory::Writable(memory), length, true)
    }

    /// Removes a region; `None` if the handle is of none.
    pub fn withdraw(&mut self, handle: &RegionHandle) -> Option<Withdrawn> {
        if !self.regions.get(&handle.region)?.is_opened_by(handle.token) {
            return None;
        }
        Some(self.regions.remove(&handle.region)?.into())
    }

    /// All regions, by their numbers.
    pub(crate) fn withdraw_all(&mut self) -> impl Iterator<Item = (u64, Withdrawn)> + use<> {
        let regions = std::mem::take(&mut self.regions).into_iter();
        regions.map(|(number, region)| (number, region.into()))
    }

    /// The memory of a region that is exposed.
    pub(crate) fn memory(&self, region: u64) -> Option<RegionMemory<'_>> {
        Some(match &self.regions.get(&region)?.memory {
            Memory::Immutable(bytes) => RegionMemory {
                bytes,
                writable: false,
            },
            Memory::Writable(buffer) => RegionMemory {
                bytes: buffer,
                writable: true,
            },
        })
    }

    /// Checks that the claim would be granted.
    ///
    /// # Errors
    /// If the claim is refused.
    pub fn check(&self, access: &Access, write: bool) -> Result<(), AccessError> {
        let length = match self.find(access)? {
            Memory::Immutable(_) if write => return Err(AccessError::ReadOnly),
            Memory::Immutable(bytes) => bytes.len(),
            Memory::Writable(buffer) => buffer.len(),
        };
        access.range(length).map(drop)
    }

    /// The bytes to send for a claim. Of a writable region it is a copy, which later writes do not touch.
    ///
    /// # Errors
    /// If the claim is refused.
    pub fn read(&self, access: &Access) -> Result<Bytes, AccessError> {
        match self.find(access)? {
            Memory::Immutable(bytes) => Ok(bytes.slice(access.range(bytes.len())?)),
            Memory::Writable(buffer) => Ok(Bytes::copy_from_slice(&buffer[access.range(buffer.len())?])),
        }
    }

    /// The memory to receive into for a claim.
    ///
    /// # Errors
    /// If the claim is refused.
    pub fn write(&mut self, access: &Access) -> Result<&mut [u8], AccessError> {
        match self.regions.get_mut(&access.region) {
            Some(region) if region.is_opened_by(access.token) => match &mut region.memory {
                Memory::Immutable(_) => Err(AccessError::ReadOnly),
                Memory::Writable(buffer) => {
                    let range = access.range(buffer.len())?;
                    Ok(&mut buffer[range])
                }
            },
            _ => Err(AccessError::Unknown),
        }
    }

    fn find(&self, access: &Access) -> Result<&Memory, AccessError> {
        match self.regions.get(&access.region) {
            Some(region) if region.is_opened_by(access.token) => Ok(&region.memory),
            _ => Err(AccessError::Unknown),
        }
    }

    fn insert(&mut self, address: &Address, memory: Memory, length: u64, writable: bool) -> RegionHandle {
        let region = self.next;
        self.next += 1;
        let token = self.token(region);
        self.regions.insert(region, Region { token, memory });
        RegionHandle {
            address: address.clone(),
            region,
            token,
            length,
            writable,
        }
    }

    fn token(&self, region: u64) -> u128 {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.token_secret).expect("HMAC takes a key of any length");
        mac.update(&region.to_le_bytes());
        let [half, _] = *mac.finalize().into_bytes().as_chunks::<16>().0 else {
            unreachable!("SHA-256 gives twice 16 bytes")
        };
        u128::from_le_bytes(half)
    }
}

impl Region {
    fn is_opened_by(&self, token: u128) -> bool {
        self.token.to_le_bytes().ct_eq(&token.to_le_bytes()).into()
    }
}

impl From<Region> for Withdrawn {
    fn from(region: Region) -> Self {
        match region.memory {
            Memory::Immutable(bytes) => Self::Immutable(bytes),
            Memory::Writable(buffer) => Self::Writable(buffer),
        }
    }
}

impl Access {
    fn range(&self, region_length: usize) -> Result<std::ops::Range<usize>, AccessError> {
        let end = self
            .offset
            .checked_add(self.length)
            .ok_or(AccessError::OutOfRange)?;
        if end > region_length as u64 {
            return Err(AccessError::OutOfRange);
        }
        // Both are at most the length of memory that exists, which is a usize.
        Ok(self.offset as usize..end as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(handle: &RegionHandle, offset: u64, length: u64) -> Access {
        Access {
            region: handle.region,
            token: handle.token,
            offset,
            length,
        }
    }

    fn table() -> (RegionTable, Address) {
        (RegionTable::new([1; 32]), "tcp://127.0.0.1:1".parse().unwrap())
    }

    proptest! {
        /// A claim is granted exactly if its range lies inside, also at the ends of the number range.
        #[test]
        fn ranges_are_checked_without_overflow(
            offset in prop_oneof![0..20u64, u64::MAX - 20..=u64::MAX],
            length in prop_oneof![0..20u64, u64::MAX - 20..=u64::MAX],
        ) {
            let (mut table, address) = table();
            let handle = table.expose_writable(&address, Buffer::zeroed(10));
            let inside = u128::from(offset) + u128::from(length) <= 10;
            let expected = if inside { Ok(length as usize) } else { Err(AccessError::OutOfRange) };
            let access = claim(&handle, offset, length);
            prop_assert_eq!(table.read(&access).map(|bytes| bytes.len()), expected);
            prop_assert_eq!(table.write(&access).map(|bytes| bytes.len()), expected);
            prop_assert_eq!(table.check(&access, true).is_ok(), inside);
        }

        /// No other token opens a region.
        #[test]
        fn only_the_token_opens(token: u128) {
            let (mut table, address) = table();
            let handle = table.expose(&address, Bytes::from_static(b"secret"));
            prop_assume!(token != handle.token);
            let forged = RegionHandle { token, ..handle };
            prop_assert_eq!(table.read(&claim(&forged, 0, 0)), Err(AccessError::Unknown));
            prop_assert!(table.withdraw(&forged).is_none());
        }
    }

    /// Tokens differ between regions and between endpoints, and a number is never used twice.
    #[test]
    fn tokens_are_of_one_region_of_one_endpoint() {
        let (mut table, address) = table();
        let first = table.expose(&address, Bytes::new());
        let second = table.expose(&address, Bytes::new());
        assert_ne!(first.token, second.token);
        assert!(table.withdraw(&second).is_some());
        assert!(table.withdraw(&second).is_none());
        assert_ne!(table.expose(&address, Bytes::new()).region, second.region);
        let mut other = RegionTable::new([2; 32]);
        assert_ne!(other.expose(&address, Bytes::new()).token, first.token);
    }

    /// Memory that may only be read is not written.
    #[test]
    fn immutable_memory_stays() {
        let (mut table, address) = table();
        let handle = table.expose(&address, Bytes::from_static(b"fixed"));
        assert_eq!(table.write(&claim(&handle, 0, 1)), Err(AccessError::ReadOnly));
        assert_eq!(
            table.check(&claim(&handle, 0, 1), true),
            Err(AccessError::ReadOnly)
        );
        assert_eq!(table.read(&claim(&handle, 1, 3)).unwrap(), "ixe");
    }
}
