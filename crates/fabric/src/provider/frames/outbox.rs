//! The frames that wait to be sent over one connection.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    Body,
    frame::{BULK_SIZE_MAX, Header, Kind, Status},
    region_table::{Access, RegionTable},
};

/// Frames ready to be sent, in order, and bulk data that becomes frames a piece at a time: so messages wait
/// behind at most 2 MiB of it, and several transfers share the connection.
#[derive(Debug)]
pub(in crate::provider) struct Outbox {
    /// Sealed bytes; what is large stands here without having been copied.
    segments: VecDeque<Bytes>,
    /// Headers and small bodies after them, so that many make one segment.
    tail: BytesMut,
    queued_bytes: usize,
    /// How many messages were added since something was sent.
    messages: usize,
    /// How many bytes were sent in all.
    sent_bytes: u64,
    /// Where each answer that is not sent ends, counted from the first byte that was sent.
    answers: VecDeque<u64>,
    streams: VecDeque<Stream>,
    /// How many of the streams are the peer's `get`s.
    served: usize,
    /// Bulk data becomes frames only while less than this is queued, in bytes: more while the system takes all of it at
    /// once, so that nothing waits behind it that would not wait in the system.
    fill_size: usize,
}

/// One transfer's data on its way out.
#[derive(Debug)]
pub(in crate::provider) struct Stream {
    /// The operation, as its origin numbers it.
    pub(in crate::provider) id: u64,
    /// True if its frames have checksums of their data.
    pub(in crate::provider) checked: bool,
    /// Where the data comes from.
    pub(in crate::provider) source: Source,
}

/// Where a transfer's data comes from.
#[derive(Debug)]
pub(in crate::provider) enum Source {
    /// The rest of our own `put`.
    Put(Bytes),
    /// The rest of a peer's `get`; looked up anew for each piece, so that it ends with the exposure.
    Served(Access),
}

impl Stream {
    fn is_served(&self) -> bool {
        matches!(self.source, Source::Served(_))
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            segments: VecDeque::new(),
            tail: BytesMut::new(),
            queued_bytes: 0,
            messages: 0,
            sent_bytes: 0,
            answers: VecDeque::new(),
            streams: VecDeque::new(),
            served: 0,
            fill_size: Self::FILL_SIZE,
        }
    }
}

impl Outbox {
    /// Bodies up to this size are copied behind their header instead of taking a segment.
    const COPY_SIZE_MAX: usize = 4 << 10;
    /// The first and the least [`fill_size`](Self::fill_size).
    const FILL_SIZE: usize = 2 * BULK_SIZE_MAX;
    /// The largest one. A MiB that goes to a socket in one write is received a quarter sooner than in two, and
    /// four MiB in two writes as soon as in one (decision 12).
    const FILL_SIZE_MAX: usize = 8 * BULK_SIZE_MAX;
    /// So many messages are worth a system call of their own: the peer begins with them while the next are being made.
    /// One call for all there is would leave one of the two sides idle at any time.
    pub(in crate::provider) const MESSAGES_PER_SEND: usize = 48;
    /// How many segments go into one system call.
    const SEGMENTS_PER_SEND: usize = 64;

    /// True if nothing waits.
    pub(in crate::provider) fn is_empty(&self) -> bool {
        self.queued_bytes == 0 && self.streams.is_empty()
    }

    /// True if more messages wait than gain by waiting for others.
    #[inline]
    pub(in crate::provider) fn is_worth_sending(&self) -> bool {
        self.messages >= Self::MESSAGES_PER_SEND
    }

    /// How many bytes were sent in all.
    pub(in crate::provider) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// How many bytes of frames wait; of bulk data only what is in frames already counts.
    pub(in crate::provider) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// How many answers wait for the peer to read.
    pub(in crate::provider) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// How many of the peer's `get`s are being served.
    pub(in crate::provider) fn served(&self) -> usize {
        self.served
    }

    /// Queues a frame.
    pub(in crate::provider) fn push_frame(&mut self, header: Header, body: Bytes) {
        let checksum = header.encode_data_checksum(&body);
        let checksum = checksum.as_ref().map_or(&[][..], |checksum| checksum);
        let header = header.encode(&body);
        self.queued_bytes += header.len() + checksum.len();
        self.tail.extend_from_slice(&header);
        self.tail.extend_from_slice(checksum);
        self.push_bytes(&body, || body.clone());
    }

    /// Queues a message, or another frame with a small body, of which `data` is the rest.
    pub(in crate::provider) fn push_message(&mut self, header: Header, body: &Body, data: Option<&Bytes>) {
        self.messages += 1;
        let header = header.encode_for(body, data.map_or(&[], |data| data));
        self.tail.extend_from_slice(&header);
        self.queued_bytes += header.len();
        self.push_bytes(body, || body.clone().into_bytes());
        if let Some(data) = data {
            self.push_bytes(data, || data.clone());
        }
    }

    /// Queues bytes of a frame: a copy of them, or themselves if they are many.
    fn push_bytes(&mut self, bytes: &[u8], shared: impl FnOnce() -> Bytes) {
        self.queued_bytes += bytes.len();
        if bytes.len() <= Self::COPY_SIZE_MAX {
            self.tail.extend_from_slice(bytes);
        } else {
            self.seal();
            self.segments.push_back(shared());
        }
    }

    /// Queues the answer to a `get` that is refused, or to a `put` that has ended.
    pub(in crate::provider) fn push_done(&mut self, id: u64, status: Status) {
        let header = Header {
            status,
            ..Header::new(Kind::Done, id)
        };
        self.push_frame(header, Bytes::new());
        self.answers.push_back(self.sent_bytes + self.queued_bytes as u64);
    }

    /// Queues bulk data.
    pub(in crate::provider) fn push_stream(&mut self, stream: Stream) {
        self.served += usize::from(stream.is_served());
        self.streams.push_back(stream);
    }

    /// Takes over what waits in an outbox of which nothing was sent.
    pub(in crate::provider) fn append(&mut self, mut other: Self) {
        assert!(
            other.sent_bytes == 0 && other.answers.is_empty() && other.served == 0,
            "a connection that is not open has been used"
        );
        self.seal();
        other.seal();
        self.segments.append(&mut other.segments);
        self.queued_bytes += other.queued_bytes;
        self.streams.append(&mut other.streams);
    }

    /// Stops our own `put`.
    pub(in crate::provider) fn cancel_put(&mut self, id: u64) {
        self.streams
            .retain(|stream| stream.id != id || stream.is_served());
    }

    /// Stops a peer's `get`.
    pub(in crate::provider) fn cancel_served(&mut self, id: u64) {
        let before = self.streams.len();
        self.streams
            .retain(|stream| stream.id != id || !stream.is_served());
        self.served -= before - self.streams.len();
    }

    /// Turns bulk data into frames until enough is queued, the transfers in turn.
    pub(in crate::provider) fn fill(&mut self, regions: &RegionTable) {
        while self.queued_bytes < self.fill_size
            && let Some(mut stream) = self.streams.pop_front()
        {
            let (kind, piece, more) = match &mut stream.source {
                Source::Put(rest) => {
                    let piece = rest.split_to(rest.len().min(BULK_SIZE_MAX));
                    (Kind::PutData, Ok(piece), !rest.is_empty())
                }
                Source::Served(rest) => {
                    let length = rest.length.min(BULK_SIZE_MAX as u64);
                    let piece = regions.read(&Access { length, ..*rest });
                    rest.offset += length;
                    rest.length -= length;
                    (Kind::GetData, piece, rest.length > 0)
                }
            };
            let more = more && piece.is_ok();
            match piece {
                Ok(piece) => {
                    let header = Header {
                        checked: stream.checked,
                        ..Header::new(kind, stream.id)
                    };
                    self.push_frame(header, piece);
                }
                Err(error) => self.push_done(stream.id, Err(error)),
            }
            if more {
                self.streams.push_back(stream);
            } else {
                self.served -= usize::from(stream.is_served());
            }
        }
    }

    /// The next bytes that are in one piece; empty if there are none.
    pub(in crate::provider) fn first_piece(&self) -> &[u8] {
        self.segments.front().map_or(&self.tail, |segment| segment)
    }

    /// Tells that the first `count` of the next bytes are in records, which counts as sent.
    pub(in crate::provider) fn handle_encrypted(&mut self, count: usize) {
        self.messages = 0;
        self.advance(count);
    }

    /// The next bytes, if they are in one piece.
    pub(in crate::provider) fn piece(&self) -> Option<&[u8]> {
        match self.segments.front() {
            None => Some(&self.tail),
            Some(segment) if self.segments.len() == 1 && self.tail.is_empty() => Some(segment),
            Some(_) => None,
        }
    }

    /// The next bytes, for one vectored send.
    pub(in crate::provider) fn slices(&self) -> Vec<IoSlice<'_>> {
        let segments = self.segments.iter().map(|segment| &segment[..]);
        let pieces = segments.chain([&self.tail[..]]);
        pieces.take(Self::SEGMENTS_PER_SEND).map(IoSlice::new).collect()
    }

    /// Tells that the first `count` of the next bytes were sent.
    pub(in crate::provider) fn handle_sent(&mut self, count: usize) {
        self.messages = 0;
        if count < self.queued_bytes {
            self.fill_size = (self.fill_size / 2).max(Self::FILL_SIZE);
        } else if count >= self.fill_size {
            self.fill_size = (self.fill_size * 2).min(Self::FILL_SIZE_MAX);
        }
        self.advance(count);
    }

    /// The first `count` of the queued bytes are done with.
    fn advance(&mut self, mut count: usize) {
        self.queued_bytes -= count;
        self.sent_bytes += count as u64;
        while self.answers.front().is_some_and(|&end| end <= self.sent_bytes) {
            self.answers.pop_front();
        }
        while count > 0
            && let Some(first) = self.segments.front_mut()
        {
            if first.len() > count {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.segments.pop_front();
        }
        if count == self.tail.len() {
            self.tail.clear();
        } else {
            self.tail.advance(count);
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.segments.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEADER_SIZE;

    /// Where the system takes all at once it is given more at once, up to a limit, and less again where it does not:
    /// then what is not sent is what a message has to wait for.
    #[test]
    fn as_much_is_filled_as_the_system_takes() {
        let regions = RegionTable::new([7; 32]);
        let mut outbox = Outbox::default();
        outbox.push_stream(Stream {
            id: 1,
            checked: false,
            source: Source::Put(Bytes::from(vec![3; 64 << 20])),
        });
        let mut filled = |taken: fn(usize) -> usize| {
            outbox.fill(&regions);
            let queued = outbox.queued_bytes();
            outbox.handle_sent(taken(queued));
            queued / (BULK_SIZE_MAX + HEADER_SIZE)
        };
        assert_eq!([(); 5].map(|()| filled(|queued| queued)), [2, 4, 8, 8, 8]);
        // Nothing is filled up while there is more than the least.
        assert_eq!([(); 4].map(|()| filled(|_| BULK_SIZE_MAX)), [8, 7, 6, 5]);
        for _ in 0..10 {
            filled(|_| BULK_SIZE_MAX);
        }
        assert_eq!(filled(|queued| queued), 2);
        assert_eq!(filled(|queued| queued), 4);
    }
}
