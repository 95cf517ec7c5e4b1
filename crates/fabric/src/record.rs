//! What frames between hosts are wrapped in where the job is encrypted: records, once the handshake is done.
//!
//! A record is a header of two bytes, content, and a tag of 16 bytes:
//!
//! | bytes | field | |
//! |---|---|---|
//! | 0..2 | length | of the content in bytes, little-endian, 1 to [`RECORD_SIZE_MAX`] |
//! | 2..2 + length | content | the next bytes of the stream of frames, encrypted |
//! | the last 16 | tag | of AES-256-GCM over header and content |
//!
//! The nonce of a record is its number on its way, from 0 on: a record that was changed, repeated, left out or moved does
//! not verify, and nothing of it is passed on. Each direction has keys of its own, made of what the two share and both
//! greetings of the handshake, nonces included: records of one connection are of no use in another, nor are they on
//! the way back. After [`RECORDS_PER_KEY`] records the next key is made of the one before, so that no key sees more than
//! AES-GCM is safe for, however long a connection lives.

use std::fmt;

use aes_gcm::{
    Aes256Gcm,
    aead::{AeadInOut, KeyInit, Nonce, Tag},
};
use hmac::Mac;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{FrameError, member_key::keyed};

/// The largest content of a record in bytes.
pub(crate) const RECORD_SIZE_MAX: usize = 16 << 10;
/// What header and tag take in bytes.
pub(crate) const RECORD_OVERHEAD: usize = HEADER_SIZE + TAG_SIZE;

const HEADER_SIZE: usize = 2;
const TAG_SIZE: usize = 16;
const WHOLE_SIZE_MAX: usize = RECORD_SIZE_MAX + RECORD_OVERHEAD;
/// 16 GiB of full records, 2^30 blocks: their cipher cannot be told from a perfect one but with a chance of 2^-69.
const RECORDS_PER_KEY: u64 = 1 << 20;

const _: () = assert!(RECORD_SIZE_MAX <= u16::MAX as usize);

/// What the keys of the records in one direction are made of.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub(crate) struct RecordSecret([u8; 32]);

/// What one side of a connection wraps and unwraps by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordSecrets {
    /// Of what it sends.
    pub(crate) sent: RecordSecret,
    /// Of what it receives.
    pub(crate) received: RecordSecret,
}

/// Turns a stream into records.
///
/// While there [is room](Self::has_room), [`write`](Self::write) makes one of the next bytes; send what is
/// [`unsent`](Self::unsent) and say how much with [`handle_sent`](Self::handle_sent).
pub(crate) struct RecordWriter {
    cipher: RecordCipher,
    records: Vec<u8>,
    sent: usize,
}

/// Turns records back into the stream.
///
/// Read into [`space`](Self::space) and say how much with [`handle_read`](Self::handle_read), then take what has come with
/// [`poll`](Self::poll) until it has nothing more. After an error there is nothing but the same error.
pub(crate) struct RecordReader {
    cipher: RecordCipher,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// The cipher of one direction.
struct RecordCipher {
    secret: RecordSecret,
    cipher: Aes256Gcm,
    /// The number of the next record.
    number: u64,
}

impl RecordSecret {
    /// That with these bytes, which must be such as nobody else knows.
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl RecordWriter {
    /// Records are made ahead while less than this waits, in bytes.
    const AHEAD_SIZE: usize = 3 * WHOLE_SIZE_MAX;
    /// Idle connections keep no more than this, in bytes.
    const KEPT_SIZE_MAX: usize = 1 << 10;
    /// What waits is never more, in bytes.
    const SIZE_MAX: usize = Self::AHEAD_SIZE + WHOLE_SIZE_MAX;

    pub(crate) fn new(secret: RecordSecret) -> Self {
        Self {
            cipher: RecordCipher::new(secret),
            records: Vec::new(),
            sent: 0,
        }
    }

    /// Whether another record may be made: not while a part of the earlier ones was sent, so that nothing is moved.
    pub(crate) fn has_room(&self) -> bool {
        self.sent == 0 && self.records.len() <= Self::AHEAD_SIZE
    }

    /// Makes one record of the first of these bytes. Returns how many went in.
    pub(crate) fn write<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> usize {
        let start = self.records.len();
        self.make_room(HEADER_SIZE);
        self.records.extend_from_slice(&[0; HEADER_SIZE]);
        let mut room = RECORD_SIZE_MAX;
        for piece in pieces {
            let piece = &piece[..piece.len().min(room)];
            self.make_room(piece.len());
            self.records.extend_from_slice(piece);
            room -= piece.len();
            if room == 0 {
                break;
            }
        }
        let length = RECORD_SIZE_MAX - room;
        assert!(length > 0, "a record has content");
        let tag = {
            let (header, content) = self.records[start..].split_at_mut(HEADER_SIZE);
            header.copy_from_slice(&(length as u16).to_le_bytes());
            self.cipher.seal(header, content)
        };
        self.make_room(tag.len());
        self.records.extend_from_slice(&tag);
        length
    }

    /// For small messages little, and then at once for all that may wait, so that it is not moved again and again.
    fn make_room(&mut self, count: usize) {
        let length = self.records.len();
        if self.records.capacity() - length < count {
            let is_little = length + count <= Self::KEPT_SIZE_MAX;
            let size = if is_little {
                Self::KEPT_SIZE_MAX
            } else {
                Self::SIZE_MAX
            };
            self.records.reserve_exact(size - length);
        }
    }

    /// Records that are to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.records[self.sent..]
    }

    /// Tells that the first `count` of the unsent bytes were sent.
    pub(crate) fn handle_sent(&mut self, count: usize) {
        self.sent += count;
        assert!(
            self.sent <= self.records.len(),
            "more was sent than there was to send"
        );
        if self.sent == self.records.len() {
            self.sent = 0;
            self.records.clear();
            self.records.shrink_to(Self::KEPT_SIZE_MAX);
        }
    }
}

impl RecordReader {
    /// How large the buffer is at first, in bytes: enough for small messages.
    const BUFFER_SIZE: usize = 2 << 10;
    /// How large it is once more comes at once.
    const BUFFER_SIZE_MAX: usize = 4 * WHOLE_SIZE_MAX;

    pub(crate) fn new(secret: RecordSecret) -> Self {
        Self {
            cipher: RecordCipher::new(secret),
            buffer: vec![0; Self::BUFFER_SIZE],
            start: 0,
            end: 0,
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

    /// The content of the next record, if all of it has come.
    ///
    /// # Errors
    /// [`FrameError::Forged`] if it is not the next that the other side sent.
    pub(crate) fn poll(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let forged = FrameError::Forged {
            record: self.cipher.number,
        };
        let received = &mut self.buffer[self.start..self.end];
        let Some((header, rest)) = received.split_first_chunk_mut::<HEADER_SIZE>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_le_bytes(*header));
        if !(1..=RECORD_SIZE_MAX).contains(&length) {
            return Err(forged);
        }
        let Some((content, rest)) = rest.split_at_mut_checked(length) else {
            return Ok(None);
        };
        let Some(tag) = rest.first_chunk::<TAG_SIZE>() else {
            return Ok(None);
        };
        if !self.cipher.open(header, content, tag) {
            return Err(forged);
        }
        let start = self.start + HEADER_SIZE;
        self.start = start + length + TAG_SIZE;
        Ok(Some(&self.buffer[start..start + length]))
    }
}

impl RecordCipher {
    fn new(secret: RecordSecret) -> Self {
        Self {
            cipher: secret.cipher(),
            secret,
            number: 0,
        }
    }

    /// Encrypts the content of the next record in place. Returns the tag.
    fn seal(&mut self, header: &[u8], content: &mut [u8]) -> [u8; TAG_SIZE] {
        let tag = self
            .cipher
            .encrypt_inout_detached(&nonce(self.number), header, content.into())
            .expect("a record is smaller than the 64 GiB that AES-GCM encrypts");
        self.advance();
        tag.into()
    }

    /// Decrypts the content of the next record in place if it is that one; else nothing is changed.
    fn open(&mut self, header: &[u8], content: &mut [u8], tag: &[u8; TAG_SIZE]) -> bool {
        let tag = Tag::<Aes256Gcm>::from(*tag);
        let opened = self
            .cipher
            .decrypt_inout_detached(&nonce(self.number), header, content.into(), &tag);
        if opened.is_err() {
            return false;
        }
        self.advance();
        true
    }

    fn advance(&mut self) {
        // At a billion records a second this takes 500 years.
        self.number = self.number.checked_add(1).expect("fewer than 2^64 records");
        if self.number.is_multiple_of(RECORDS_PER_KEY) {
            self.secret = self.secret.next();
            self.cipher = self.secret.cipher();
        }
    }
}

impl RecordSecret {
    /// The cipher with the key that is made of this.
    fn cipher(&self) -> Aes256Gcm {
        let mut key = self.derive(b"ropewalk key of records");
        let cipher = Aes256Gcm::new((&key).into());
        key.zeroize();
        cipher
    }

    /// What the keys after these are made of. It tells nothing of this.
    fn next(&self) -> Self {
        Self(self.derive(b"ropewalk next secret of records"))
    }

    fn derive(&self, label: &[u8]) -> [u8; 32] {
        keyed(&self.0, label).finalize().into_bytes().into()
    }
}

/// The nonce of the record with this number: unique for each key.
fn nonce(number: u64) -> Nonce<Aes256Gcm> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

impl fmt::Debug for RecordSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordSecret(..)")
    }
}

impl fmt::Debug for RecordWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.cipher.number;
        write!(
            f,
            "RecordWriter({number} records, {} bytes unsent)",
            self.unsent().len()
        )
    }
}

impl fmt::Debug for RecordReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordReader({} records)", self.cipher.number)
    }
}

#[cfg(test)]
mod tests;
