//! The format of requests inside the fabric's messages.
//!
//! A request is an unexpected message whose tag is the one that the reply has. All integers are
//! little-endian.
//!
//! | bytes | what | when |
//! |---|---|---|
//! | 8 | procedure; how many calls, in a batch | always |
//! | 7 | time left in microseconds | always |
//! | 1 | flags | always |
//! | 32 | [`Once`]: origin, sequence, lowest sequence in use, target | at most once |
//! | 32 | [`Remote`]: region, token, length | overflow |
//! | rest | input in postcard, then data from a multiple of 16 bytes on; calls of a batch | otherwise |
//!
//! A call of a batch is 8 bytes tag, 4 bytes slot (both go back with its reply), 4 bytes length of its
//! input, 8 bytes procedure, and the input. A cancellation is a header alone, with [`Once`] behind it if the call is
//! made at most once. So is a refusal, which is for a notification: what is one-way has no reply that could say so.

use std::{fmt, time::Duration};

use bytes::{Buf, BufMut};
pub(crate) use ropewalk_fabric::Body;
use serde::Serialize;

use crate::CallOptions;

/// The header at the beginning of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    /// Which procedure, or how many calls a batch has.
    pub(crate) procedure: u64,
    /// How long the caller waits.
    pub(crate) timeout: Duration,
    pub(crate) flags: Flags,
}

/// The kind of a request, and of the parts that follow its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

/// Which call it is, so that it runs at most once however often it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    /// The endpoint instance that made the call.
    pub(crate) origin: u64,
    /// The number of the call among those of the origin.
    pub(crate) sequence: u64,
    /// No call of the origin below this number will come again.
    pub(crate) lowest: u64,
    /// The endpoint instance that an earlier attempt may have reached; 0 if there was none.
    pub(crate) target: u64,
}

/// Where an input or output lies that is too large for a message: in a region of the sender.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) region: u64,
    pub(crate) token: u128,
    pub(crate) length: u64,
}

/// A request, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) header: RequestHeader,
    pub(crate) once: Option<Once>,
    pub(crate) payload: Payload<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// The calls of a batch.
    Batch(&'a [u8]),
    /// The origin waits no longer for the call with the tag of this message.
    Cancel,
    Input(&'a [u8]),
    /// A notification of the procedure found no room at the one it went to.
    Refused,
    RemoteInput(Remote),
}

/// One call of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchedCall<'a> {
    pub(crate) procedure: u64,
    pub(crate) slot: Slot,
    pub(crate) input: &'a [u8],
}

/// Which call a reply in a batch of replies is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) tag: u64,
    /// Where the origin finds it.
    pub(crate) index: u32,
}

impl Flags {
    pub(crate) const AT_MOST_ONCE: Self = Self(1);
    pub(crate) const BATCH: Self = Self(2);
    pub(crate) const CANCEL: Self = Self(4);
    pub(crate) const ONE_WAY: Self = Self(8);
    pub(crate) const OVERFLOW: Self = Self(16);
    /// The reply is to say how long the call was handled.
    pub(crate) const TIMING: Self = Self(32);
    const ALL: u8 = 63;

    /// The flags for what the options of a call ask of the target.
    pub(crate) const fn of(options: &CallOptions) -> Self {
        match options.timing {
            true => Self::TIMING,
            false => Self(0),
        }
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl RequestHeader {
    pub(crate) const SIZE: usize = 16;
    const FLAGS_AT: usize = 15;
    const TIMEOUT_US_MAX: u64 = (1 << 56) - 1;

    pub(crate) fn encode(&self) -> [u8; Self::SIZE] {
        let timeout_us = u64::try_from(self.timeout.as_micros()).unwrap_or(u64::MAX);
        let timeout_us = timeout_us.min(Self::TIMEOUT_US_MAX);
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.procedure.to_le_bytes());
        bytes[8..].copy_from_slice(&(timeout_us | u64::from(self.flags.0) << 56).to_le_bytes());
        bytes
    }

    /// Makes `request` the header and the input behind it.
    #[inline]
    pub(crate) fn encode_with<I: Serialize>(
        &self,
        input: &I,
        request: &mut Body,
    ) -> Result<(), postcard::Error> {
        encode_into(request, &self.encode(), input)
    }
}

impl Once {
    const SIZE: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut at = &mut bytes[..];
        for word in [self.origin, self.sequence, self.lowest, self.target] {
            at.put_u64_le(word);
        }
        bytes
    }
}

impl Remote {
    pub(crate) const SIZE: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut at = &mut bytes[..];
        at.put_u64_le(self.region);
        at.put_u128_le(self.token);
        at.put_u64_le(self.length);
        bytes
    }

    /// `None` if the bytes are not just that.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let remote = Self {
            region: bytes.try_get_u64_le().ok()?,
            token: bytes.try_get_u128_le().ok()?,
            length: bytes.try_get_u64_le().ok()?,
        };
        bytes.is_empty().then_some(remote)
    }
}

impl fmt::Debug for Remote {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("region", &self.region)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// Tells the target that nobody waits for the call with the tag of this message any longer; by which number it
    /// knows it, if an earlier attempt had another tag.
    pub(crate) fn cancellation(once: Option<&Once>) -> Body {
        let flags = match once {
            Some(_) => Flags::CANCEL.with(Flags::AT_MOST_ONCE),
            None => Flags::CANCEL,
        };
        let header = RequestHeader {
            procedure: 0,
            timeout: Duration::ZERO,
            flags,
        };
        match once {
            Some(once) => Body::from([&header.encode()[..], &once.encode()].concat()),
            None => Body::from(&header.encode()[..]),
        }
    }

    /// Tells the origin of a notification that it was not handled.
    pub(crate) fn refusal(procedure: u64) -> Body {
        let header = RequestHeader {
            procedure,
            timeout: Duration::ZERO,
            flags: Flags::CANCEL.with(Flags::ONE_WAY),
        };
        Body::from(&header.encode()[..])
    }

    /// The request, whose input begins at `head`, with the input elsewhere.
    pub(crate) fn with_remote_input(request: &[u8], head: usize, remote: Remote) -> Body {
        let mut message = [&request[..head], &remote.encode()].concat();
        message[RequestHeader::FLAGS_AT] |= Flags::OVERFLOW.0;
        Body::from(message)
    }

    /// Procedure, time-out and input of a request without flags, as most are.
    #[inline]
    pub(crate) fn decode_plain(message: &'a [u8]) -> Option<(u64, Duration, &'a [u8])> {
        let (header, input) = message.split_first_chunk::<{ RequestHeader::SIZE }>()?;
        let (mut procedure, mut word) = header.split_at(8);
        let (procedure, word) = (procedure.get_u64_le(), word.get_u64_le());
        let plain = word <= RequestHeader::TIMEOUT_US_MAX;
        plain.then(|| (procedure, Duration::from_micros(word), input))
    }

    /// `None` if it is no request.
    pub(crate) fn decode(mut message: &'a [u8]) -> Option<Self> {
        let procedure = message.try_get_u64_le().ok()?;
        let word = message.try_get_u64_le().ok()?;
        let bits = (word >> 56) as u8;
        if bits & !Flags::ALL != 0 {
            return None;
        }
        let flags = Flags(bits);
        let header = RequestHeader {
            procedure,
            timeout: Duration::from_micros(word & RequestHeader::TIMEOUT_US_MAX),
            flags,
        };
        let mut once = None;
        if flags.has(Flags::AT_MOST_ONCE) {
            once = Some(Once {
                origin: message.try_get_u64_le().ok()?,
                sequence: message.try_get_u64_le().ok()?,
                lowest: message.try_get_u64_le().ok()?,
                target: message.try_get_u64_le().ok()?,
            });
        }
        let payload = if flags.has(Flags::CANCEL) && flags.has(Flags::ONE_WAY) {
            Payload::Refused
        } else if flags.has(Flags::CANCEL) {
            Payload::Cancel
        } else if flags.has(Flags::BATCH) {
            Payload::Batch(message)
        } else if flags.has(Flags::OVERFLOW) {
            Payload::RemoteInput(Remote::decode(message)?)
        } else {
            Payload::Input(message)
        };
        Some(Self {
            header,
            once,
            payload,
        })
    }
}

impl<'a> BatchedCall<'a> {
    /// The bytes that a call of a batch takes besides its input.
    pub(crate) const HEADER_SIZE: usize = 24;

    /// Appends a call with its encoded input to a batch.
    pub(crate) fn encode_into(batch: &mut Vec<u8>, procedure: u64, slot: Slot, input: &[u8]) {
        let length = u32::try_from(input.len()).expect("a batch is no larger than a message");
        batch.put_u64_le(slot.tag);
        batch.put_u32_le(slot.index);
        batch.put_u32_le(length);
        batch.put_u64_le(procedure);
        batch.extend_from_slice(input);
    }

    /// The next call of a batch, which it is taken from; `None` at its end, or where it is broken.
    pub(crate) fn decode_next(batch: &mut &'a [u8]) -> Option<Self> {
        let slot = Slot {
            tag: batch.try_get_u64_le().ok()?,
            index: batch.try_get_u32_le().ok()?,
        };
        let length = batch.try_get_u32_le().ok()?;
        let procedure = batch.try_get_u64_le().ok()?;
        let (input, rest) = batch.split_at_checked(usize::try_from(length).ok()?)?;
        *batch = rest;
        Some(Self {
            procedure,
            slot,
            input,
        })
    }
}

/// `head` and what `value` is in postcard.
pub(crate) fn encode_behind<T: Serialize>(head: &[u8], value: &T) -> Result<Body, postcard::Error> {
    let mut body = Body::new();
    encode_into(&mut body, head, value)?;
    Ok(body)
}

/// Makes `body` of `head` and what `value` is in postcard: without an allocation while it is small.
#[inline]
pub(crate) fn encode_into<T: Serialize>(
    body: &mut Body,
    head: &[u8],
    value: &T,
) -> Result<(), postcard::Error> {
    let small = body.inline(Body::INLINE_MAX);
    if let Some((start, room)) = small.split_at_mut_checked(head.len()) {
        start.copy_from_slice(head);
        match postcard::to_slice(value, room).map(|encoded| encoded.len()) {
            Ok(size) => {
                body.inline(head.len() + size);
                return Ok(());
            }
            Err(postcard::Error::SerializeBufferFull) => {}
            Err(error) => return Err(error),
        }
    }
    let mut bytes = Vec::with_capacity(LARGE_SIZE);
    bytes.extend_from_slice(head);
    *body = postcard::to_extend(value, bytes)?.into();
    Ok(())
}

/// How much memory a message that is not small begins with.
const LARGE_SIZE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: Flags) -> RequestHeader {
        RequestHeader {
            procedure: 7,
            timeout: Duration::from_millis(3),
            flags,
        }
    }

    /// Requests of each kind come back as they went, and what is none is refused.
    #[test]
    fn requests_survive_the_wire() {
        let plain = header(Flags::default());
        let mut message = Body::new();
        plain.encode_with(&7u8, &mut message).unwrap();
        let decoded = Request::decode_plain(&message);
        assert_eq!(decoded, Some((plain.procedure, plain.timeout, &[7][..])));
        assert_eq!(Request::decode_plain(&message[..RequestHeader::SIZE - 1]), None);

        let plain = header(Flags::TIMING.with(Flags::ONE_WAY));
        assert_eq!(Request::decode_plain(&plain.encode()), None);
        plain.encode_with(&(1u8, "x"), &mut message).unwrap();
        let request = Request::decode(&message).unwrap();
        assert_eq!((request.header, request.once), (plain, None));
        let Payload::Input(input) = request.payload else {
            panic!("{request:?}");
        };
        assert_eq!(
            postcard::from_bytes::<(u8, String)>(input).unwrap(),
            (1, "x".to_owned())
        );

        let once = Once {
            origin: 1,
            sequence: 2,
            lowest: 3,
            target: 4,
        };
        let remote = Remote {
            region: 5,
            token: 6 << 70,
            length: 7,
        };
        let both = header(Flags::AT_MOST_ONCE.with(Flags::OVERFLOW));
        let message = [&both.encode()[..], &once.encode(), &remote.encode()].concat();
        let expected = Request {
            header: both,
            once: Some(once),
            payload: Payload::RemoteInput(remote),
        };
        assert_eq!(Request::decode(&message), Some(expected));
        for length in 0..message.len() {
            assert_eq!(Request::decode(&message[..length]), None);
        }
        assert_eq!(Request::decode(&[&message[..], &[0]].concat()), None);
        let cancel = header(Flags::CANCEL).encode();
        assert_eq!(Request::decode(&cancel).unwrap().payload, Payload::Cancel);
        let cancel = Request::cancellation(Some(&once));
        let decoded = Request::decode(&cancel).unwrap();
        assert_eq!((decoded.once, decoded.payload), (Some(once), Payload::Cancel));
        let refusal = Request::refusal(7);
        let decoded = Request::decode(&refusal).unwrap();
        assert_eq!((decoded.header.procedure, decoded.payload), (7, Payload::Refused));
        assert_eq!(Request::decode(&header(Flags(64)).encode()), None);
    }

    /// A time-out beyond what the header holds becomes the longest, and does not spill into the flags.
    #[test]
    fn timeouts_keep_to_their_bytes() {
        let longest = RequestHeader {
            timeout: Duration::MAX,
            ..header(Flags::default())
        };
        let decoded = Request::decode(&longest.encode()).unwrap().header;
        assert_eq!(decoded.flags, Flags::default());
        assert_eq!(
            decoded.timeout,
            Duration::from_micros(RequestHeader::TIMEOUT_US_MAX)
        );
    }

    /// The calls of a batch come back in order, and a broken one ends it.
    #[test]
    fn batches_survive_the_wire() {
        let mut batch = Vec::new();
        for index in 0..3 {
            let slot = Slot { tag: 10, index };
            BatchedCall::encode_into(&mut batch, 5, slot, &vec![1; index as usize * 100]);
        }
        let mut rest = &batch[..];
        for index in 0..3 {
            let call = BatchedCall::decode_next(&mut rest).unwrap();
            assert_eq!((call.procedure, call.slot), (5, Slot { tag: 10, index }));
            assert_eq!(call.input, vec![1; index as usize * 100]);
        }
        assert!(rest.is_empty() && BatchedCall::decode_next(&mut rest).is_none());
        assert!(BatchedCall::decode_next(&mut &batch[..batch.len() / 20]).is_none());
    }

    /// The encoding behind a head is the same whether it fits on the stack or not.
    #[test]
    fn small_and_large_are_encoded_the_same() {
        const SMALL: usize = Body::INLINE_MAX;
        for size in [0, 1, SMALL - 3, SMALL - 2, SMALL, 1000] {
            let value = vec![3u8; size];
            let expected = [&[9][..], &postcard::to_allocvec(&value).unwrap()].concat();
            assert_eq!(encode_behind(&[9], &value).unwrap(), expected);
        }
    }
}
