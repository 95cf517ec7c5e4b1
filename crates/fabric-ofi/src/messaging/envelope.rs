//! The envelope before each message of an association.
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..8 | association | as the receiver numbers it; 0 in the first message of the side that calls |
//! | 8..12 | sequence | how many data messages its sender sent before it |
//! | 12..16 | acknowledged | how many data messages its sender has received |
//! | 16 | kind | see [`EnvelopeKind`] |
//! | 17..20 | reserved | 0 |
//! | 20..24 | checksum | CRC-32C of the 20 bytes before it |
//!
//! All numbers are little-endian. The first data message of each side then says how it is answered, see
//! [`Opening`].

use bytes::{Buf, BufMut};
use ropewalk_fabric::FrameError;

/// The size of an envelope in bytes.
pub(crate) const ENVELOPE_SIZE: usize = 24;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) association: u64,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    pub(crate) kind: EnvelopeKind,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EnvelopeKind {
    /// The next bytes of the stream.
    Data = 1,
    /// Nothing but its number of acknowledged messages.
    Acknowledgement = 2,
    /// The sender has ended the association.
    Close = 3,
}

impl Envelope {
    pub(crate) fn encode(&self) -> [u8; ENVELOPE_SIZE] {
        let mut bytes = [0; ENVELOPE_SIZE];
        let mut at = &mut bytes[..];
        at.put_u64_le(self.association);
        at.put_u32_le(self.sequence);
        at.put_u32_le(self.acknowledged);
        at.put_u8(self.kind as u8);
        let checksum = crc32c::crc32c(&bytes[..20]);
        bytes[20..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The envelope of a message, and what is in it.
    pub(crate) fn decode(message: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let Some((bytes, content)) = message.split_first_chunk::<ENVELOPE_SIZE>() else {
            let length = message.len();
            return Err(FrameError::Length { length });
        };
        let mut at = &bytes[..];
        let association = at.get_u64_le();
        let sequence = at.get_u32_le();
        let acknowledged = at.get_u32_le();
        let kind = at.get_u8();
        let reserved = at.get_uint_le(3);
        let expected = at.get_u32_le();
        let computed = crc32c::crc32c(&bytes[..20]);
        if computed != expected {
            return Err(FrameError::Checksum { computed, expected });
        }
        let kind = match kind {
            1 => EnvelopeKind::Data,
            2 => EnvelopeKind::Acknowledgement,
            3 => EnvelopeKind::Close,
            _ => return Err(FrameError::Kind { kind }),
        };
        if reserved != 0 {
            return Err(FrameError::Header);
        }
        let envelope = Self {
            association,
            sequence,
            acknowledged,
            kind,
        };
        Ok((envelope, content))
    }
}

/// How the sender of a first message is answered: how it numbers the association (8 bytes, never 0), and where
/// it is (a byte for the length, then its name at the transport; empty in an answer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening<'a> {
    pub(crate) association: u64,
    pub(crate) name: &'a [u8],
}

impl<'a> Opening<'a> {
    /// The longest name in bytes.
    pub(crate) const NAME_SIZE_MAX: usize = u8::MAX as usize;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let length =
            u8::try_from(self.name.len()).expect("a transport's names are checked when it is opened");
        let mut bytes = Vec::with_capacity(9 + self.name.len());
        bytes.put_u64_le(self.association);
        bytes.put_u8(length);
        bytes.put_slice(self.name);
        bytes
    }

    /// The inverse of [`encode`](Self::encode), and what comes after it.
    pub(crate) fn decode(mut content: &'a [u8]) -> Result<(Self, &'a [u8]), FrameError> {
        let length = content.len();
        let wrong = FrameError::Length { length };
        let association = content.try_get_u64_le().map_err(|_| wrong)?;
        let size = content.try_get_u8().map_err(|_| wrong)?;
        let (name, rest) = content.split_at_checked(usize::from(size)).ok_or(wrong)?;
        if association == 0 {
            return Err(FrameError::Header);
        }
        Ok((Self { association, name }, rest))
    }
}
