//! What requests and replies look like inside the fabric's messages.
//!
//! A request is an unexpected message whose tag numbers the call: 8 bytes procedure, 8 bytes time left in
//! microseconds (0 for a one-way notification, which has no reply), both little-endian, then the input. A
//! reply is the expected message with the same tag: a byte that says what it is, then the output or the
//! fault. Inputs, outputs and faults are postcard.

use std::time::Duration;

use bytes::{Buf, Bytes};
use serde::{Serialize, de::DeserializeOwned};

use crate::Fault;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) procedure: u64,
    /// The time that the caller waits; `None` if it does not wait for a reply.
    pub(crate) timeout: Option<Duration>,
}

impl RequestHeader {
    const SIZE: usize = 16;

    pub(crate) fn encode<I: Serialize>(&self, input: &I) -> Result<Bytes, postcard::Error> {
        let timeout_us = self.timeout.map_or(0, |timeout| {
            u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).max(1)
        });
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(self.procedure.to_le_bytes());
        bytes.extend(timeout_us.to_le_bytes());
        postcard::to_extend(input, bytes).map(Bytes::from)
    }

    /// The header and the encoded input after it; `None` if it is too short for a request.
    pub(crate) fn decode(mut message: Bytes) -> Option<(Self, Bytes)> {
        if message.len() < Self::SIZE {
            return None;
        }
        let procedure = message.get_u64_le();
        let timeout = match message.get_u64_le() {
            0 => None,
            timeout_us => Some(Duration::from_micros(timeout_us)),
        };
        Some((Self { procedure, timeout }, message))
    }
}

/// What a target answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply<O> {
    Busy,
    Fault(Fault),
    InputMalformed,
    Output(O),
    UnknownProcedure,
}

impl<O: Serialize> Reply<O> {
    pub(crate) fn encode(&self) -> Bytes {
        let encoded = match self {
            Self::Output(output) => postcard::to_extend(output, vec![0]),
            Self::Fault(fault) => postcard::to_extend(fault, vec![1]),
            Self::UnknownProcedure => Ok(vec![2]),
            Self::InputMalformed => Ok(vec![3]),
            Self::Busy => Ok(vec![4]),
        };
        match encoded {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                Reply::<()>::Fault(Fault::new(format_args!("the output cannot be encoded: {error}"))).encode()
            }
        }
    }
}

impl<O: DeserializeOwned> Reply<O> {
    /// The inverse of [`encode`](Self::encode); `None` if it is no reply.
    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let (&kind, body) = message.split_first()?;
        match kind {
            0 => postcard::from_bytes(body).ok().map(Self::Output),
            1 => postcard::from_bytes(body).ok().map(Self::Fault),
            2 => Some(Self::UnknownProcedure),
            3 => Some(Self::InputMalformed),
            4 => Some(Self::Busy),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests and replies come back as they went, and what is none is refused.
    #[test]
    fn messages_survive_the_wire() {
        let header = RequestHeader {
            procedure: 7,
            timeout: Some(Duration::from_millis(3)),
        };
        let (decoded, input) = RequestHeader::decode(header.encode(&(1u8, "x")).unwrap()).unwrap();
        assert_eq!(decoded, header);
        assert_eq!(
            postcard::from_bytes::<(u8, String)>(&input).unwrap(),
            (1, "x".to_owned())
        );
        assert_eq!(RequestHeader::decode(Bytes::from_static(&[0; 15])), None);

        let replies = [
            Reply::Output(5u32),
            Reply::Fault(Fault::new("no")),
            Reply::UnknownProcedure,
            Reply::InputMalformed,
            Reply::Busy,
        ];
        for reply in replies {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        assert_eq!(Reply::<u32>::decode(&[]), None);
        assert_eq!(Reply::<u32>::decode(&[9]), None);
        assert_eq!(Reply::<String>::decode(&[0, 200]), None);
    }

    /// A time-out that is shorter than a microsecond is not taken for a notification.
    #[test]
    fn a_short_timeout_stays_a_call() {
        let header = RequestHeader {
            procedure: 1,
            timeout: Some(Duration::ZERO),
        };
        let (decoded, _) = RequestHeader::decode(header.encode(&()).unwrap()).unwrap();
        assert!(decoded.timeout.is_some());
    }
}
