//! Encryption of a connection by Noise (<https://noiseprotocol.org>, by the crate `snow`), in records.
//!
//! Both ends agree on keys with the pattern `NNpsk0`: two messages, in which each end shows an ephemeral key of its own
//! and proves that it has the key that the two share. The prologue is both greetings of the
//! [handshake](crate::handshake), so that nobody on the way can change them. What is recorded cannot be decrypted by a
//! key that becomes known later.
//!
//! After the handshake the stream of frames goes in records:
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..2 | length | of the message in bytes, little-endian, 17 to [`RECORD_SIZE_MAX`] + 16 |
//! | 2..2 + length | message | a transport message of Noise: the next bytes of the stream, and a tag of 16 bytes |
//!
//! Each direction has a key of its own, and both ends count messages: one that was changed, repeated, left out, moved
//! or reflected does not verify, and nothing of it is passed on.

use std::fmt;

use hmac::Mac;
use snow::{Builder, HandshakeState, TransportState};

use crate::{FrameError, HandshakeError, member_key::SharedKey};

/// The largest content of a record in bytes. Noise allows four times as much, which would make the buffers of a
/// connection four times as large for a tenth more speed.
pub(crate) const RECORD_SIZE_MAX: usize = 16 << 10;
/// The size of header and tag together, in bytes.
pub(crate) const RECORD_OVERHEAD: usize = HEADER_SIZE + TAG_SIZE;
/// The size of the message of the handshake that comes first, with [`Opening`] in it, in bytes.
pub(crate) const OPENING_SIZE: usize = EPHEMERAL_SIZE + 1 + TAG_SIZE;
/// The size of the other message, which is empty, in bytes.
pub(crate) const ANSWER_SIZE: usize = EPHEMERAL_SIZE + TAG_SIZE;

const NAME: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const EPHEMERAL_SIZE: usize = 32;
const HEADER_SIZE: usize = 2;
const TAG_SIZE: usize = 16;
const WHOLE_SIZE_MAX: usize = RECORD_SIZE_MAX + RECORD_OVERHEAD;
const _: () = assert!(RECORD_SIZE_MAX + TAG_SIZE <= u16::MAX as usize);

/// One end of a handshake of Noise.
pub(crate) struct NoiseHandshake(Box<HandshakeState>);

/// The content of the first message, besides the proof of who sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The other end may answer.
    Welcome,
    /// The other end is fenced.
    Fenced,
}

impl NoiseHandshake {
    /// The end that sends the first message. `greetings` are those of the handshake, the initiator's first.
    pub(crate) fn opener(key: &SharedKey, greetings: [&[u8]; 2]) -> Self {
        Self::new(key, greetings, |builder| builder.build_initiator())
    }

    /// The end that answers it.
    pub(crate) fn answerer(key: &SharedKey, greetings: [&[u8]; 2]) -> Self {
        Self::new(key, greetings, |builder| builder.build_responder())
    }

    fn new(
        key: &SharedKey,
        greetings: [&[u8]; 2],
        build: fn(Builder<'_>) -> Result<HandshakeState, snow::Error>,
    ) -> Self {
        // A greeting contains its own length, so that the two cannot be divided differently.
        let prologue = greetings.concat();
        let psk: [u8; 32] = key.hash(b"ropewalk noise").finalize().into_bytes().into();
        let state = NAME
            .parse()
            .and_then(|name| Builder::new(name).prologue(&prologue)?.psk(0, &psk))
            .and_then(build);
        Self(Box::new(state.expect("snow has this pattern and these ciphers")))
    }

    /// The first message.
    pub(crate) fn open(&mut self, says: Opening) -> Result<[u8; OPENING_SIZE], HandshakeError> {
        self.write(&[(says == Opening::Fenced).into()])
    }

    /// Reads the first message.
    pub(crate) fn read_opening(&mut self, message: &[u8]) -> Result<Opening, HandshakeError> {
        let mut says = [0];
        self.read(message, &mut says)?;
        Ok(match says {
            [0] => Opening::Welcome,
            _ => Opening::Fenced,
        })
    }

    /// The second message.
    pub(crate) fn answer(&mut self) -> Result<[u8; ANSWER_SIZE], HandshakeError> {
        self.write(&[])
    }

    /// Reads the second message.
    pub(crate) fn read_answer(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        self.read(message, &mut [])
    }

    fn write<const SIZE: usize>(&mut self, content: &[u8]) -> Result<[u8; SIZE], HandshakeError> {
        let mut message = [0; SIZE];
        match self.0.write_message(content, &mut message) {
            Ok(size) if size == SIZE => Ok(message),
            // The system has no random numbers to give.
            _ => Err(HandshakeError::Proof),
        }
    }

    fn read(&mut self, message: &[u8], content: &mut [u8]) -> Result<(), HandshakeError> {
        match self.0.read_message(message, content) {
            Ok(size) if size == content.len() => Ok(()),
            _ => Err(HandshakeError::Proof),
        }
    }

    /// The records after the handshake; `None` before both messages were written and read.
    pub(crate) fn into_records(self) -> Option<Box<Records>> {
        let noise = self.0.into_transport_mode().ok()?;
        Some(Box::new(Records::new(noise)))
    }
}

/// Turns a stream into records, and records that come back into a stream.
///
/// While there [is room](Self::has_room), [`write`](Self::write) makes a record of the next bytes; send what is
/// [`unsent`](Self::unsent) and say how much with [`handle_sent`](Self::handle_sent).
///
/// Read into [`space`](Self::space) and say how much with [`handle_read`](Self::handle_read), then take what has come
/// with [`poll`](Self::poll) until it has nothing more. After an error there is nothing but the same error.
pub(crate) struct Records {
    noise: TransportState,
    /// Made, and sent up to [`sent`](Self::sent).
    written: Vec<u8>,
    sent: usize,
    /// Received, from `start` to `end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Records {
    /// Records are made ahead while less than this waits, in bytes.
    const AHEAD_SIZE: usize = 3 * WHOLE_SIZE_MAX;
    /// Idle connections keep no more than this of what they sent, in bytes.
    const KEPT_SIZE_MAX: usize = 1 << 10;
    /// The most that ever waits, in bytes.
    const WRITTEN_SIZE_MAX: usize = Self::AHEAD_SIZE + WHOLE_SIZE_MAX;
    /// How large the buffer of received bytes is at first, in bytes: enough for small messages.
    const BUFFER_SIZE: usize = 2 << 10;
    /// How large it is once more comes at once.
    const BUFFER_SIZE_MAX: usize = 4 * WHOLE_SIZE_MAX;

    fn new(noise: TransportState) -> Self {
        Self {
            noise,
            written: Vec::new(),
            sent: 0,
            buffer: vec![0; Self::BUFFER_SIZE],
            start: 0,
            end: 0,
        }
    }

    /// Returns true if another record may be made: not while a part of the earlier ones was sent, so that
    /// nothing is moved.
    pub(crate) fn has_room(&self) -> bool {
        self.sent == 0 && self.written.len() <= Self::AHEAD_SIZE
    }

    /// Makes one record of the first of these bytes, of which there is at least one. Returns how many went in.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let content = &bytes[..bytes.len().min(RECORD_SIZE_MAX)];
        assert!(!content.is_empty(), "a record has content");
        let start = self.written.len();
        let end = start + content.len() + RECORD_OVERHEAD;
        if end > self.written.capacity() {
            // For small messages little, and then at once for all that may wait, so that it is not moved again.
            let size = match end <= Self::KEPT_SIZE_MAX {
                true => Self::KEPT_SIZE_MAX,
                false => Self::WRITTEN_SIZE_MAX,
            };
            self.written.reserve_exact(size - start);
        }
        self.written.resize(end, 0);
        let (header, message) = self.written[start..].split_at_mut(HEADER_SIZE);
        header.copy_from_slice(&(message.len() as u16).to_le_bytes());
        let size = self.noise.write_message(content, message);
        assert_eq!(size, Ok(message.len()), "a record is a message of Noise");
        content.len()
    }

    /// Records that are to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.written[self.sent..]
    }

    /// Tells that the first `count` of the unsent bytes were sent.
    pub(crate) fn handle_sent(&mut self, count: usize) {
        self.sent += count;
        assert!(
            self.sent <= self.written.len(),
            "more was sent than there was to send"
        );
        if self.sent == self.written.len() {
            self.sent = 0;
            self.written.clear();
            self.written.shrink_to(Self::KEPT_SIZE_MAX);
        }
    }

    /// Where the next bytes may be read to; never empty after [`poll`](Self::poll) had nothing.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// Tells that `count` bytes were read into [`space`](Self::space).
    pub(crate) fn handle_read(&mut self, count: usize) {
        assert!(
            count <= self.buffer.len() - self.end,
            "more was read than there was space"
        );
        self.end += count;
        if self.end == self.buffer.len() {
            // What says how long a record is may be forged: this is enough for any.
            self.buffer.resize(Self::BUFFER_SIZE_MAX, 0);
        }
    }

    /// The content of the next record, if all of it has come; it is put into `content`.
    ///
    /// # Errors
    /// [`FrameError::Forged`] if it is not the next that the other side sent.
    pub(crate) fn poll<'a>(
        &mut self,
        content: &'a mut [u8; RECORD_SIZE_MAX],
    ) -> Result<Option<&'a [u8]>, FrameError> {
        let forged = FrameError::Forged {
            record: self.noise.receiving_nonce(),
        };
        let received = &self.buffer[self.start..self.end];
        let Some((header, rest)) = received.split_first_chunk::<HEADER_SIZE>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*header));
        if !(TAG_SIZE + 1..=TAG_SIZE + RECORD_SIZE_MAX).contains(&length) {
            return Err(forged);
        }
        let Some(message) = rest.get(..length) else {
            return Ok(None);
        };
        let Ok(count) = self.noise.read_message(message, content) else {
            return Err(forged);
        };
        self.start += HEADER_SIZE + length;
        Ok(Some(&content[..count]))
    }
}

impl fmt::Debug for NoiseHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoiseHandshake(..)")
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, received) = (self.noise.sending_nonce(), self.noise.receiving_nonce());
        let unsent = self.unsent().len();
        write!(
            f,
            "Records({sent} sent, {received} received, {unsent} bytes unsent)"
        )
    }
}

#[cfg(test)]
mod tests;
