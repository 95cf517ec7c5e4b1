//! Messages between neighbours in the tree, sent in batches: many messages in one.

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::protocol::{Down, Up};

/// A neighbour knows the job's key, but does not speak as this version does.
#[derive(Debug, thiserror::Error)]
#[error(
    "sent {size} bytes that are no message of ropewalk {} ({reason}): the same version must be installed on all hosts",
    env!("CARGO_PKG_VERSION")
)]
pub struct LinkError {
    size: usize,
    reason: String,
}

impl LinkError {
    /// It says that what cannot be has come, or something is missing before it.
    pub fn numbers(body: &[u8]) -> Self {
        Self {
            size: body.len(),
            reason: "its numbers do not agree with what came before".to_owned(),
        }
    }
}

/// The numbers before the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// From 1 on; 0 if there are no messages.
    pub(crate) number: u64,
    /// The number of the last that came from the other end.
    pub(crate) received: u64,
    /// This is the first over another connection: the other end answers, so that it is known what came there.
    pub(crate) greets: bool,
}

/// A message of a link.
pub trait LinkMessage: DeserializeOwned {
    /// Returns true if the numbers in the message agree, so that a receiver can rely on them.
    fn is_sound(&self) -> bool;
}

/// A batch as it is sent.
pub fn encode<T: Serialize>(head: Head, batch: &[T]) -> Bytes {
    let bytes = postcard::to_allocvec(&(head, batch)).expect("messages have no map and no unsized sequence");
    Bytes::from(bytes)
}

/// Reads one batch, with nothing behind it.
pub fn decode<T: LinkMessage>(body: &[u8]) -> Result<(Head, Vec<T>), LinkError> {
    let error = |reason: &str| LinkError {
        size: body.len(),
        reason: reason.to_owned(),
    };
    match postcard::take_from_bytes::<(Head, Vec<T>)>(body) {
        Ok((read, [])) if read.1.iter().all(T::is_sound) => Ok(read),
        Ok((_, [])) => Err(error("its numbers do not agree")),
        Ok(_) => Err(error("something follows it")),
        Err(reason) => Err(error(&reason.to_string())),
    }
}

impl LinkMessage for Up {
    fn is_sound(&self) -> bool {
        true
    }
}

impl LinkMessage for Down {
    fn is_sound(&self) -> bool {
        match self {
            Self::Group(group) => group.is_sound(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_names::HostId;

    use super::*;
    use crate::protocol::Report;

    /// A batch comes back as it was; a part of it, or more than it, is refused with its size.
    #[test]
    fn only_whole_batches_are_read() {
        let batch = vec![Up {
            host: HostId(3),
            stamp: None,
            report: Report::Lost { how: "x".to_owned() },
        }];
        let head = Head::default();
        let mut bytes = encode(head, &batch).to_vec();
        let (read_head, read) = decode::<Up>(&bytes).unwrap();
        assert_eq!(read_head, head);
        assert!(
            matches!(&read[..], [Up { host: HostId(3), report: Report::Lost { how }, .. }] if how == "x")
        );
        let error = decode::<Up>(&bytes[..bytes.len() - 1]).unwrap_err().to_string();
        assert!(
            error.starts_with("sent 8 bytes that are no message of ropewalk"),
            "{error}"
        );
        bytes.push(0);
        let error = decode::<Up>(&bytes).unwrap_err().to_string();
        assert!(error.contains("something follows"), "{error}");
        assert!(decode::<Down>(&[200; 64]).is_err());
    }
}
