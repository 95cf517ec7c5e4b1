//! The frames that endpoints exchange over a byte stream, once the handshake is done.
//!
//! A frame is a header of [`HEADER_SIZE`] bytes and a body. All numbers are little-endian:
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..4 | length | of the body in bytes |
//! | 4 | kind | see [`Kind`] |
//! | 5 | status | of a [`Kind::Done`], else 0 |
//! | 6..8 | flags | 1 for checked data, which only [`Kind::Get`] and bulk frames may have; else 0 |
//! | 8..16 | id | the tag of a message; else the operation, as its origin numbers it |
//! | 16..20 | checksum | CRC-32C of the 16 bytes before it, and of the body unless it is bulk data |
//!
//! Bulk data is raw and received straight into place; it comes in frames of at most [`BULK_SIZE_MAX`] bytes,
//! so that other frames get between them.
//!
//! A bulk frame with checked data has the CRC-32C of its body in 4 bytes between header and body, which the length
//! does not count. A [`Kind::Get`] with the flag asks for its data in such frames; a `put`'s origin sends them if it
//! wants to. So the origin decides, and the target goes along.

use bytes::{Buf, BufMut};
use thiserror::Error;

use crate::{AccessError, region_table::Access};

pub(crate) use self::decoder::{Decoded, Decoder};

mod decoder;

/// The size of a header in bytes.
pub const HEADER_SIZE: usize = 20;

/// The largest body of a bulk frame in bytes.
pub(crate) const BULK_SIZE_MAX: usize = 256 << 10;

/// The size in bytes of the body of a frame that asks for a `get` or `put`.
pub const ACCESS_SIZE: usize = 40;

/// The size of the body of [`Kind::Offer`] in bytes.
pub(crate) const OFFER_SIZE: usize = 48;

/// The size of the checksum before checked data in bytes.
const DATA_CHECKSUM_SIZE: usize = 4;

/// The flag of checked data.
const CHECKED: u16 = 1;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An unexpected message.
    Unexpected = 1,
    /// An expected message.
    Expected = 2,
    /// Send me this part of a region.
    Get = 3,
    /// The next bytes of what was asked for by `Get`; bulk.
    GetData = 4,
    /// I am going to write this part of a region.
    Put = 5,
    /// The next bytes of what `Put` announced; bulk.
    PutData = 6,
    /// A `Get` was refused or a `Put` has ended, as the status says.
    Done = 7,
    /// The origin has lost interest in its `Get` or `Put`.
    Cancel = 8,
    /// The answer to what its id names.
    Reply = 9,
    /// Are you there?
    Ping = 10,
    /// I am here.
    Pong = 11,
    /// This memory I share; descriptors come with it.
    Offer = 12,
    /// Look into the memory that we share.
    Doorbell = 13,
}

/// The kind of a message to its receiver. The numbers are those of the frames that carry them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// Somebody posted a receive for it.
    Expected = Kind::Expected as u8,
    /// A heartbeat that asks for another.
    Ping = Kind::Ping as u8,
    /// The heartbeat that was asked for.
    Pong = Kind::Pong as u8,
    /// The answer to what its tag names.
    Reply = Kind::Reply as u8,
    /// Nobody knows of it.
    Unexpected = Kind::Unexpected as u8,
}

/// The header that stands before each body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The size of the body in bytes.
    pub(crate) length: usize,
    /// The kind of frame.
    pub(crate) kind: Kind,
    /// How an operation ended; `Ok` in all other frames.
    pub(crate) status: Status,
    /// The data of this bulk frame, or the data that this `Get` asks for, goes with a checksum.
    pub(crate) checked: bool,
    /// The tag of a message; else the operation, as its origin numbers it.
    pub(crate) id: u64,
}

/// How a one-sided operation ended at the target.
pub(crate) type Status = Result<(), AccessError>;

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Result<Self, FrameError> {
        const KINDS: [Kind; 13] = [
            Kind::Unexpected,
            Kind::Expected,
            Kind::Get,
            Kind::GetData,
            Kind::Put,
            Kind::PutData,
            Kind::Done,
            Kind::Cancel,
            Kind::Reply,
            Kind::Ping,
            Kind::Pong,
            Kind::Offer,
            Kind::Doorbell,
        ];
        let index = usize::from(byte).checked_sub(1);
        index
            .and_then(|index| KINDS.get(index).copied())
            .ok_or(FrameError::Kind { kind: byte })
    }

    /// The kind of frame that carries messages of this kind.
    pub(crate) fn from_message(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Expected => Self::Expected,
            MessageKind::Ping => Self::Ping,
            MessageKind::Pong => Self::Pong,
            MessageKind::Reply => Self::Reply,
            MessageKind::Unexpected => Self::Unexpected,
        }
    }

    /// The inverse of [`from_message`](Self::from_message); `None` if it carries no message.
    pub(crate) fn message(self) -> Option<MessageKind> {
        Some(match self {
            Self::Expected => MessageKind::Expected,
            Self::Ping => MessageKind::Ping,
            Self::Pong => MessageKind::Pong,
            Self::Reply => MessageKind::Reply,
            Self::Unexpected => MessageKind::Unexpected,
            Self::Get
            | Self::GetData
            | Self::Put
            | Self::PutData
            | Self::Done
            | Self::Cancel
            | Self::Offer
            | Self::Doorbell => return None,
        })
    }

    fn is_bulk(self) -> bool {
        matches!(self, Self::GetData | Self::PutData)
    }

    fn may_be_checked(self) -> bool {
        self.is_bulk() || self == Self::Get
    }

    fn allows_length(self, length: usize, message_size_max: usize) -> bool {
        match self {
            Self::Unexpected | Self::Expected | Self::Reply => length <= message_size_max,
            Self::Get | Self::Put => length == ACCESS_SIZE,
            Self::GetData | Self::PutData => (1..=BULK_SIZE_MAX).contains(&length),
            Self::Offer => length == OFFER_SIZE,
            Self::Done | Self::Cancel | Self::Ping | Self::Pong | Self::Doorbell => length == 0,
        }
    }
}

impl Header {
    /// A header without body or failure.
    pub(crate) fn new(kind: Kind, id: u64) -> Self {
        Self {
            length: 0,
            kind,
            status: Ok(()),
            checked: false,
            id,
        }
    }

    /// The encoded header of a frame whose body is `body`; a bulk body is not looked at but for its length.
    ///
    /// # Panics
    /// If the body has 4 GiB or more.
    pub(crate) fn encode(&self, body: &[u8]) -> [u8; HEADER_SIZE] {
        self.encode_for(body, &[])
    }

    /// As [`encode`](Self::encode), for a body of two parts.
    pub(crate) fn encode_for(&self, body: &[u8], rest: &[u8]) -> [u8; HEADER_SIZE] {
        let length =
            u32::try_from(body.len() + rest.len()).expect("no frame is larger than a message may be");
        let mut bytes = [0; HEADER_SIZE];
        let mut at = &mut bytes[..];
        at.put_u32_le(length);
        at.put_u8(self.kind as u8);
        at.put_u8(encode_status(self.status));
        at.put_u16_le(if self.checked { CHECKED } else { 0 });
        at.put_u64_le(self.id);
        let mut checksum = crc32c::crc32c(&bytes[..16]);
        if !self.kind.is_bulk() {
            checksum = crc32c::crc32c_append(checksum, body);
            checksum = crc32c::crc32c_append(checksum, rest);
        }
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The checksum between header and body, if this is a bulk frame with checked data.
    pub(crate) fn encode_data_checksum(&self, data: &[u8]) -> Option<[u8; DATA_CHECKSUM_SIZE]> {
        (self.checked && self.kind.is_bulk()).then(|| crc32c::crc32c(data).to_le_bytes())
    }

    fn decode(bytes: &[u8; HEADER_SIZE], message_size_max: usize) -> Result<(Self, u32), FrameError> {
        let mut at = &bytes[..];
        let length = at.get_u32_le() as usize;
        let kind = Kind::from_byte(at.get_u8())?;
        let status = decode_status(at.get_u8())?;
        let flags = at.get_u16_le();
        let id = at.get_u64_le();
        let checksum = at.get_u32_le();
        let checked = flags == CHECKED && kind.may_be_checked();
        if (flags != 0 && !checked) || (status.is_err() && kind != Kind::Done) {
            return Err(FrameError::Header);
        }
        if !kind.allows_length(length, message_size_max) {
            return Err(FrameError::Length { length });
        }
        let header = Self {
            length,
            kind,
            status,
            checked,
            id,
        };
        Ok((header, checksum))
    }
}

fn encode_status(status: Status) -> u8 {
    match status {
        Ok(()) => 0,
        Err(AccessError::Unknown) => 1,
        Err(AccessError::OutOfRange) => 2,
        Err(AccessError::ReadOnly) => 3,
        Err(AccessError::Busy) => 4,
    }
}

fn decode_status(byte: u8) -> Result<Status, FrameError> {
    Ok(match byte {
        0 => Ok(()),
        1 => Err(AccessError::Unknown),
        2 => Err(AccessError::OutOfRange),
        3 => Err(AccessError::ReadOnly),
        4 => Err(AccessError::Busy),
        _ => return Err(FrameError::Header),
    })
}

impl Access {
    /// The body of [`Kind::Get`] and [`Kind::Put`].
    pub(crate) fn encode(&self) -> [u8; ACCESS_SIZE] {
        let mut bytes = [0; ACCESS_SIZE];
        let mut at = &mut bytes[..];
        at.put_u64_le(self.region);
        at.put_u128_le(self.token);
        at.put_u64_le(self.offset);
        at.put_u64_le(self.length);
        bytes
    }

    /// The inverse of [`encode`](Self::encode).
    ///
    /// # Errors
    /// If the body has another length.
    pub(crate) fn decode(mut body: &[u8]) -> Result<Self, FrameError> {
        if body.len() != ACCESS_SIZE {
            return Err(FrameError::Length { length: body.len() });
        }
        Ok(Self {
            region: body.get_u64_le(),
            token: body.get_u128_le(),
            offset: body.get_u64_le(),
            length: body.get_u64_le(),
        })
    }
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The checksum is not that of the bytes.
    #[error("the checksum of a frame is {computed:#010x}, expected {expected:#010x}")]
    Checksum {
        /// The one of the bytes that came.
        computed: u32,
        /// The one that came with them.
        expected: u32,
    },
    /// More was consumed than was sent, or less than before.
    #[error("the peer says to have consumed what it cannot have")]
    Counter,
    /// Something came over an encrypted connection that is not what the peer sent next.
    #[error(
        "record {record} of the encrypted connection does not verify: something on the way changed it, left \
             out or repeated one"
    )]
    Forged {
        /// Which one was expected, from 0 on.
        record: u64,
    },
    /// A field of the header has a value that it cannot have.
    #[error("the header of a frame is malformed")]
    Header,
    /// There is no such kind.
    #[error("there is no frame of kind {kind}")]
    Kind {
        /// The kind's number.
        kind: u8,
    },
    /// The body is too long, or its length does not fit its kind.
    #[error("a frame of its kind has no body of {length} bytes")]
    Length {
        /// The length in bytes.
        length: usize,
    },
    /// The frame is well formed but does not fit what came before.
    #[error("a frame came that nothing before it led to")]
    Unsolicited,
}

#[cfg(test)]
mod tests;
