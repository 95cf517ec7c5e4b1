//! From bytes to frames.

use bytes::BytesMut;

use super::{DATA_CHECKSUM_SIZE, FrameError, HEADER_SIZE, Header};
use crate::Body;

/// Cuts a byte stream into frames.
///
/// Read into [`space`](Self::space) and say how much with [`handle_read`](Self::handle_read), then take what
/// has come with [`poll`](Self::poll) until it has nothing more. While
/// [`bulk_remaining`](Self::bulk_remaining) is not zero and `poll` has nothing, that many of the next bytes
/// may instead be read straight into place; [`handle_bulk_read`](Self::handle_bulk_read) tells of them. The last
/// bytes of checked data are an error if not all of it is right, so that nothing is completed with them. After an
/// error the stream is of no use.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Empty until it is first used: strangers cost nothing.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    pub(super) body: Incoming,
    message_size_max: usize,
}

#[derive(Debug)]
pub(super) enum Incoming {
    /// Between two frames.
    None,
    /// In a bulk body with this much to come.
    Bulk {
        remaining: usize,
        check: Option<DataCheck>,
    },
    /// In another body.
    Message(MessageBody),
}

/// The body of a message, or of another frame that is no bulk data, which has not come whole.
#[derive(Debug)]
pub(super) struct MessageBody {
    header: Header,
    header_checksum: u32,
    checksum: u32,
    /// The bytes that have come, `filled` of them, and room for more.
    pub(super) bytes: BytesMut,
    pub(super) filled: usize,
}

impl MessageBody {
    /// Memory grows with what has come, and not with what the header promises: ahead of it by as much again, or by this
    /// if it is more.
    pub(super) const AHEAD: usize = 256 << 10;

    fn remaining(&self) -> usize {
        self.header.length - self.filled
    }

    /// Room for the next bytes, for one at least if there are any to come.
    fn room(&mut self) -> &mut [u8] {
        if self.filled == self.bytes.len() {
            let ahead = self.filled.max(Self::AHEAD).min(self.remaining());
            self.bytes.resize(self.filled + ahead, 0);
        }
        &mut self.bytes[self.filled..]
    }
}

/// The checksum of what has come of checked data, and of all of it as its sender says.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataCheck {
    computed: u32,
    expected: u32,
}

impl Incoming {
    /// Accounts for the next bytes of a bulk body.
    fn advance_bulk(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        let Self::Bulk { remaining, check } = self else {
            return Ok(());
        };
        *remaining -= bytes.len();
        if let Some(check) = check {
            check.computed = crc32c::crc32c_append(check.computed, bytes);
            if *remaining == 0 {
                verify(check.computed, check.expected)?;
            }
        }
        if *remaining == 0 {
            *self = Self::None;
        }
        Ok(())
    }
}

/// Something that a decoder found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded<'a> {
    /// A bulk frame begins.
    Bulk(Header),
    /// The next bytes of the bulk frame.
    BulkBytes(&'a [u8]),
    /// A whole frame of another kind.
    Frame(Header, Body),
}

impl Decoder {
    /// The size of the buffer in bytes.
    pub(crate) const BUFFER_SIZE: usize = 32 << 10;
    /// Shorter rests of messages come sooner by way of the buffer, with the frames that follow.
    const IN_PLACE_MIN: usize = 8 << 10;

    /// A decoder of a stream whose messages are at most so large, in bytes.
    pub(crate) fn new(message_size_max: usize) -> Self {
        Self {
            buffer: Box::default(),
            start: 0,
            end: 0,
            body: Incoming::None,
            message_size_max: message_size_max.min(u32::MAX as usize),
        }
    }

    /// The place that the next bytes may be read to; never empty after `poll` had nothing.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = vec![0; Self::BUFFER_SIZE].into();
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < HEADER_SIZE {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Tells that `count` bytes were read into [`space`](Self::space).
    ///
    /// # Panics
    /// If there was less space.
    pub(crate) fn handle_read(&mut self, count: usize) {
        assert!(
            count <= self.buffer.len() - self.end,
            "more was read than there was space"
        );
        self.end += count;
    }

    /// The places that the next bytes may be read to: those of a long message in place, and then up to `beyond` bytes
    /// of what comes behind it.
    pub(crate) fn spaces(&mut self, beyond: usize) -> (&mut [u8], &mut [u8]) {
        // This makes room, if there is none.
        self.space();
        match &mut self.body {
            Incoming::Message(body) if self.start == self.end && body.remaining() >= Self::IN_PLACE_MIN => {
                (body.room(), &mut self.buffer[self.end..][..beyond])
            }
            _ => (&mut [], &mut self.buffer[self.end..]),
        }
    }

    /// Tells that `count` bytes were read into [`spaces`](Self::spaces).
    ///
    /// # Panics
    /// If there was less space.
    pub(crate) fn handle_read_to_spaces(&mut self, count: usize) {
        let in_place = count.min(self.spaces(0).0.len());
        if let Incoming::Message(body) = &mut self.body {
            body.filled += in_place;
        }
        self.handle_read(count - in_place);
    }

    /// How many bytes of the current bulk frame are still to come.
    pub(crate) fn bulk_remaining(&self) -> usize {
        match self.body {
            Incoming::Bulk { remaining, .. } => remaining,
            _ => 0,
        }
    }

    /// Tells that these bytes of the bulk frame were read straight into place.
    ///
    /// # Errors
    /// If the frame ends with them and its data is checked and wrong.
    ///
    /// # Panics
    /// If bytes before these are still in the buffer, or the frame has fewer to come.
    pub(crate) fn handle_bulk_read(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        assert!(
            self.start == self.end,
            "bytes before these are still in the buffer"
        );
        let (count, remaining) = (bytes.len(), self.bulk_remaining());
        assert!(count <= remaining, "{count} bytes were read of {remaining}");
        self.body.advance_bulk(bytes)
    }

    /// The next thing in the stream, if all of it has come.
    ///
    /// # Errors
    /// If the stream has something that is no frame.
    pub(crate) fn poll(&mut self) -> Result<Option<Decoded<'_>>, FrameError> {
        if matches!(self.body, Incoming::None) {
            let buffered = &self.buffer[self.start..self.end];
            let Some((bytes, rest)) = buffered.split_first_chunk::<HEADER_SIZE>() else {
                return Ok(None);
            };
            let (header, checksum) = Header::decode(bytes, self.message_size_max)?;
            let header_checksum = crc32c::crc32c(&bytes[..16]);
            if header.kind.is_bulk() {
                verify(header_checksum, checksum)?;
                let mut size = HEADER_SIZE;
                let mut check = None;
                if header.checked {
                    let Some(&expected) = rest.first_chunk::<DATA_CHECKSUM_SIZE>() else {
                        return Ok(None);
                    };
                    size += DATA_CHECKSUM_SIZE;
                    check = Some(DataCheck {
                        computed: 0,
                        expected: u32::from_le_bytes(expected),
                    });
                }
                self.start += size;
                self.body = Incoming::Bulk {
                    remaining: header.length,
                    check,
                };
                return Ok(Some(Decoded::Bulk(header)));
            }
            self.start += HEADER_SIZE;
            // Most messages are small and come whole.
            if header.length <= Body::INLINE_MAX && header.length <= self.end - self.start {
                let body = &self.buffer[self.start..self.start + header.length];
                self.start += header.length;
                verify(crc32c::crc32c_append(header_checksum, body), checksum)?;
                return Ok(Some(Decoded::Frame(header, Body::from(body))));
            }
            self.body = Incoming::Message(MessageBody {
                header,
                header_checksum,
                checksum,
                bytes: BytesMut::new(),
                filled: 0,
            });
        }
        let buffered = self.end - self.start;
        match &mut self.body {
            Incoming::None => Ok(None),
            Incoming::Bulk { .. } if buffered == 0 => Ok(None),
            Incoming::Bulk { remaining, .. } => {
                let count = buffered.min(*remaining);
                let bytes = &self.buffer[self.start..self.start + count];
                self.start += count;
                self.body.advance_bulk(bytes)?;
                Ok(Some(Decoded::BulkBytes(bytes)))
            }
            Incoming::Message(body) => {
                while self.start < self.end && body.remaining() > 0 {
                    let room = body.room();
                    let count = room.len().min(self.end - self.start);
                    room[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
                    body.filled += count;
                    self.start += count;
                }
                if body.remaining() > 0 {
                    return Ok(None);
                }
                let bytes = std::mem::take(&mut body.bytes).freeze();
                verify(crc32c::crc32c_append(body.header_checksum, &bytes), body.checksum)?;
                let decoded = Decoded::Frame(body.header, Body::from(bytes));
                self.body = Incoming::None;
                Ok(Some(decoded))
            }
        }
    }
}

fn verify(computed: u32, expected: u32) -> Result<(), FrameError> {
    if computed != expected {
        return Err(FrameError::Checksum { computed, expected });
    }
    Ok(())
}
