//! The format of replies inside the fabric's messages.
//!
//! A reply is a byte that says what it is, and then that. If the byte's highest bit is set, 8 bytes with the
//! time in nanoseconds for which the call was handled stand between the two.
//!
//! | byte | what | then |
//! |---|---|---|
//! | 0 | output | it, in postcard |
//! | 1 | fault | it, in postcard |
//! | 2 | the procedure is unknown | |
//! | 3 | the input cannot be read | |
//! | 4 | busy | 1 byte: [`BusyReason`] |
//! | 5 | output elsewhere | 32 bytes: [`Remote`] |
//! | 6 | the instance asked for is gone | |
//! | 7 | it ran, but its output is gone | |
//! | 8 | replies to several calls of a batch | [`BatchedReplies`] |
//! | 9 | the input is too large | 8 bytes: the largest size |

use std::time::Duration;

use bytes::{Buf, BufMut};
use serde::Serialize;

use crate::{
    BusyReason, FailureCounts, Fault,
    wire::{Body, Remote, Slot, encode_behind, encode_into},
};

/// The answer of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    Batch(BatchedReplies<'a>),
    Busy(BusyReason),
    Fault(Fault),
    InputMalformed,
    InputTooLarge { size_max: u64 },
    OtherInstance,
    Output(&'a [u8]),
    OutputForgotten,
    RemoteOutput(Remote),
    UnknownProcedure,
}

/// Replies to calls that came in a batch: of each 8 bytes tag, 4 bytes slot, 4 bytes length, and the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchedReplies<'a>(&'a [u8]);

/// How long a call was handled, if it was asked for.
pub(crate) type Handling = Option<Duration>;

const OUTPUT: u8 = 0;
const FAULT: u8 = 1;
const UNKNOWN_PROCEDURE: u8 = 2;
const INPUT_MALFORMED: u8 = 3;
const BUSY: u8 = 4;
const REMOTE_OUTPUT: u8 = 5;
const OTHER_INSTANCE: u8 = 6;
const OUTPUT_FORGOTTEN: u8 = 7;
const BATCH: u8 = 8;
const INPUT_TOO_LARGE: u8 = 9;
const TIMED: u8 = 0x80;

/// Makes `body` the reply to a call that was handled.
#[inline]
pub(crate) fn encode_result<O: Serialize>(result: &Result<O, Fault>, handling: Handling, body: &mut Body) {
    let encoded = match (result, handling) {
        (Ok(output), None) => encode_into(body, &[OUTPUT], output),
        (Ok(output), Some(_)) => {
            let (head, size) = head(OUTPUT, handling);
            encode_into(body, &head[..size], output)
        }
        (Err(fault), _) => {
            *body = Reply::Fault(fault.clone()).encode(handling);
            return;
        }
    };
    if let Err(error) = encoded {
        let fault = Fault::new(format_args!("the output cannot be encoded: {error}"));
        *body = Reply::Fault(fault).encode(handling);
    }
}

/// Counts an encoded reply that is no output.
pub(crate) fn count(body: &[u8], failures: &mut FailureCounts) {
    let Some(&kind) = body.first() else { return };
    match kind & !TIMED {
        OUTPUT | REMOTE_OUTPUT | BATCH => {}
        BUSY => failures.busy += 1,
        FAULT => failures.fault += 1,
        INPUT_MALFORMED => failures.malformed += 1,
        UNKNOWN_PROCEDURE => failures.unknown_procedure += 1,
        _ => failures.other += 1,
    }
}

impl<'a> Reply<'a> {
    /// Where the output begins in a plain reply with one.
    pub(crate) const PLAIN_OUTPUT_AT: usize = 1;

    /// Returns true if the message is an output, without a handling time.
    pub(crate) fn is_plain_output(message: &[u8]) -> bool {
        message.first() == Some(&OUTPUT)
    }

    pub(crate) fn encode(&self, handling: Handling) -> Body {
        let encoded = match self {
            Self::Output(output) => Ok(encode_bytes(OUTPUT, handling, output)),
            Self::Fault(fault) => encode_with(FAULT, handling, fault),
            Self::UnknownProcedure => Ok(encode_bytes(UNKNOWN_PROCEDURE, handling, &[])),
            Self::InputMalformed => Ok(encode_bytes(INPUT_MALFORMED, handling, &[])),
            Self::Busy(reason) => Ok(encode_bytes(BUSY, handling, &[*reason as u8])),
            Self::RemoteOutput(remote) => Ok(encode_bytes(REMOTE_OUTPUT, handling, &remote.encode())),
            Self::OtherInstance => Ok(encode_bytes(OTHER_INSTANCE, handling, &[])),
            Self::OutputForgotten => Ok(encode_bytes(OUTPUT_FORGOTTEN, handling, &[])),
            Self::Batch(replies) => Ok(encode_bytes(BATCH, handling, replies.0)),
            Self::InputTooLarge { size_max } => {
                Ok(encode_bytes(INPUT_TOO_LARGE, handling, &size_max.to_le_bytes()))
            }
        };
        encoded.expect("a fault is a text, which postcard encodes")
    }

    /// The inverse of [`encode`](Self::encode); `None` if it is no reply.
    pub(crate) fn decode(message: &'a [u8]) -> Option<(Self, Handling)> {
        let (&first, mut rest) = message.split_first()?;
        let handling = match first & TIMED {
            0 => None,
            _ => Some(Duration::from_nanos(rest.try_get_u64_le().ok()?)),
        };
        let reply = match (first & !TIMED, rest) {
            (OUTPUT, output) => Self::Output(output),
            (FAULT, fault) => Self::Fault(postcard::from_bytes(fault).ok()?),
            (UNKNOWN_PROCEDURE, []) => Self::UnknownProcedure,
            (INPUT_MALFORMED, []) => Self::InputMalformed,
            (BUSY, &[reason]) => Self::Busy(BusyReason::from_byte(reason)?),
            (REMOTE_OUTPUT, remote) => Self::RemoteOutput(Remote::decode(remote)?),
            (OTHER_INSTANCE, []) => Self::OtherInstance,
            (OUTPUT_FORGOTTEN, []) => Self::OutputForgotten,
            (BATCH, replies) => Self::Batch(BatchedReplies(replies)),
            (INPUT_TOO_LARGE, size_max) => Self::InputTooLarge {
                size_max: u64::from_le_bytes(size_max.try_into().ok()?),
            },
            _ => return None,
        };
        Some((reply, handling))
    }
}

impl<'a> BatchedReplies<'a> {
    /// The bytes that a reply of a batch takes besides its own.
    pub(crate) const OVERHEAD: usize = 16;

    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn encode_into(replies: &mut Vec<u8>, slot: Slot, reply: &[u8]) {
        let length = u32::try_from(reply.len()).expect("what does not fit into a message goes elsewhere");
        replies.put_u64_le(slot.tag);
        replies.put_u32_le(slot.index);
        replies.put_u32_le(length);
        replies.extend_from_slice(reply);
    }
}

impl<'a> Iterator for BatchedReplies<'a> {
    type Item = (Slot, &'a [u8]);

    /// The next reply; `None` at the end, or where it is broken.
    fn next(&mut self) -> Option<Self::Item> {
        let slot = Slot {
            tag: self.0.try_get_u64_le().ok()?,
            index: self.0.try_get_u32_le().ok()?,
        };
        let length = self.0.try_get_u32_le().ok()?;
        let (reply, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some((slot, reply))
    }
}

/// The bytes before the reply proper.
fn head(kind: u8, handling: Handling) -> ([u8; 9], usize) {
    let mut head = [kind; 9];
    let Some(handling) = handling else {
        return (head, 1);
    };
    let nanos = u64::try_from(handling.as_nanos()).unwrap_or(u64::MAX);
    head[0] = kind | TIMED;
    head[1..].copy_from_slice(&nanos.to_le_bytes());
    (head, 9)
}

fn encode_with<T: Serialize>(kind: u8, handling: Handling, value: &T) -> Result<Body, postcard::Error> {
    let (head, size) = head(kind, handling);
    encode_behind(&head[..size], value)
}

fn encode_bytes(kind: u8, handling: Handling, bytes: &[u8]) -> Body {
    let (head, size) = head(kind, handling);
    let message = [&head[..size], bytes].concat();
    match message.len() <= Body::INLINE_MAX {
        true => Body::from(&message[..]),
        false => Body::from(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies come back as they went, and what is none is refused.
    #[test]
    fn replies_survive_the_wire() {
        let mut batch = Vec::new();
        for index in 0..3 {
            BatchedReplies::encode_into(&mut batch, Slot { tag: 1, index }, &vec![4; index as usize]);
        }
        let remote = Remote {
            region: 1,
            token: 2,
            length: 3,
        };
        let replies = [
            Reply::Batch(BatchedReplies(&batch)),
            Reply::Busy(BusyReason::CallsOfPeer),
            Reply::Fault(Fault::new("no")),
            Reply::InputMalformed,
            Reply::InputTooLarge { size_max: 7 },
            Reply::OtherInstance,
            Reply::Output(&[5]),
            Reply::OutputForgotten,
            Reply::RemoteOutput(remote),
            Reply::UnknownProcedure,
        ];
        for reply in replies {
            for handling in [None, Some(Duration::from_nanos(1234))] {
                assert_eq!(
                    Reply::decode(&reply.encode(handling)),
                    Some((reply.clone(), handling))
                );
            }
        }
        for none in [
            &[][..],
            &[10],
            &[2, 0],
            &[4, 200],
            &[5, 1],
            &[0x80, 1, 2],
            &[1, 200],
        ] {
            assert_eq!(Reply::decode(none), None, "{none:?}");
        }
        let slots: Vec<_> = BatchedReplies(&batch).collect();
        assert_eq!(slots.len(), 3);
        assert_eq!(slots[2], (Slot { tag: 1, index: 2 }, &[4, 4][..]));
        assert_eq!(BatchedReplies(&batch[..batch.len() - 1]).count(), 2);
    }

    /// An output that cannot be encoded is a fault that says so.
    #[test]
    fn outputs_that_cannot_be_encoded() {
        struct Unencodable;
        impl Serialize for Unencodable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("not this"))
            }
        }
        let mut reply = Body::new();
        encode_result(&Ok(Unencodable), None, &mut reply);
        assert!(matches!(Reply::decode(&reply), Some((Reply::Fault(_), None))));
    }
}
