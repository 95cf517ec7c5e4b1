//! The messages between an agent and the PMIx server of its host, a process of its own that has loaded libpmix.
//!
//! Messages are postcard behind their length, as four bytes with the lowest first.

mod namespace;

use std::collections::BTreeMap;

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::event::OutputStream;

pub use namespace::{Namespace, Node, PARENT_KEY, Program};

/// The longest message: the data of a fence and its members fit.
pub const MESSAGE_SIZE_MAX: usize = 128 << 20;

/// A process, as PMIx names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// The process group.
    pub namespace: String,
    /// The rank in it; `None` stands for all.
    pub rank: Option<u32>,
}

/// Who waits for the data of a process of another host: the agent there, and the number of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModexAsker {
    /// The host of the agent.
    pub host: HostId,
    /// The number of the request there.
    pub token: u64,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToHelper {
    /// There is this process group.
    Register(Box<Namespace>),
    /// Nothing is left of this process group, anywhere.
    Forget(String),
    /// To [`FromHelper::Fence`].
    FenceEnded {
        /// The number of the request.
        token: u64,
        /// How it ended.
        end: FenceEnd,
    },
    /// To [`FromHelper::Ask`].
    Answered {
        /// The number of the request.
        token: u64,
        /// The answer.
        answer: pmi::Answer,
    },
    /// A process of another host wants what this one of here has put.
    ModexWanted {
        /// Who wants it.
        asker: ModexAsker,
        /// Whose data.
        process: Process,
    },
    /// To [`FromHelper::Modex`].
    ModexAnswered {
        /// The number of the request.
        token: u64,
        /// The data that the process has put; `None` if it cannot be had.
        data: Option<Vec<u8>>,
    },
    /// To [`FromHelper::Log`]: the text has been taken.
    Logged {
        /// The number of the request.
        token: u64,
    },
    /// To [`FromHelper::Refresh`]: all that there was to be told has been told.
    Refreshed {
        /// The number of the request.
        token: u64,
        /// The processes of all hosts that run, if they are wanted.
        running: RunningProcesses,
    },
    /// A process of this host runs, or has ended.
    Lives {
        /// The process.
        process: Process,
        /// Its number on this host while it runs.
        pid: Option<u32>,
    },
    /// A process failed.
    Departed(Process),
    /// No process of this host is left: remove what they had registered for that, and end.
    End,
}

/// Processes that run: the number of each on its host, by its process group and its rank there.
pub type RunningProcesses = BTreeMap<String, BTreeMap<u32, u32>>;

/// How a fence ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FenceEnd {
    /// All came.
    Complete {
        /// The data of all hosts.
        data: Vec<u8>,
        /// The number of the group that the members construct, if they do. No other group of the job has it.
        context: Option<u64>,
    },
    /// A member is gone.
    Gone,
    /// The tree of agents is broken.
    Lost,
    /// There is more data than a fence can have.
    TooLarge,
    /// Its members are of several process groups, or of one that is not known.
    Unknown,
}

/// From the PMIx server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromHelper {
    /// It serves now.
    Ready {
        /// The version of libpmix, as the library says it.
        version: String,
    },
    /// It cannot serve, and ends.
    Failed {
        /// The reason.
        reason: String,
    },
    /// A process group is registered.
    Registered {
        /// PMI's number of the group.
        group: u32,
        /// The variables of each of its processes here, as `NAME=VALUE`.
        environments: Vec<(u32, Vec<String>)>,
    },
    /// A process has begun.
    Connected(Process),
    /// A process has finalized.
    Finalized(Process),
    /// A process wants the job to end.
    Aborted {
        /// The process.
        process: Process,
        /// The exit code that it wants.
        exit_code: i32,
        /// Its reason; empty if it gives none.
        message: String,
    },
    /// All processes here that take part in a fence have come to it.
    Fence {
        /// To be repeated in the answer.
        token: u64,
        /// All that take part.
        members: Vec<Process>,
        /// The word that tells it from others with the same members.
        tag: String,
        /// The data of the processes here, for all others.
        data: Vec<u8>,
        /// The members construct a group, which gets a number.
        constructs_group: bool,
    },
    /// A process asks for a name or for processes.
    Ask {
        /// To be repeated in the answer.
        token: u64,
        /// The process.
        from: Process,
        /// The question.
        wish: Wish,
    },
    /// A process asks for what the agent may know better by now.
    Refresh {
        /// To be repeated in the answer.
        token: u64,
        /// The processes of other hosts are wanted too.
        all_hosts: bool,
    },
    /// A process wants a text to come out as if it had written it.
    Log {
        /// To be repeated in the answer.
        token: u64,
        /// The process.
        from: Process,
        /// The stream.
        stream: OutputStream,
        /// The text: whole lines, with their ends.
        lines: Vec<u8>,
    },
    /// A process wants what one of another host has put.
    Modex {
        /// To be repeated in the answer.
        token: u64,
        /// Whose data.
        process: Process,
    },
    /// To [`ToHelper::ModexWanted`].
    ModexFound {
        /// Who wants it.
        asker: ModexAsker,
        /// The data that the process has put; `None` if it cannot be had.
        data: Option<Vec<u8>>,
    },
}

/// A question of a process that only the root can answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// The value that was published under a name.
    Lookup {
        /// The name.
        name: String,
    },
    /// Publish a value.
    Publish {
        /// The name.
        name: String,
        /// The value.
        value: Vec<u8>,
    },
    /// Start processes.
    Spawn(pmi::Spawn),
    /// Forget a name.
    Unpublish {
        /// The name.
        name: String,
    },
}

/// Bytes that make no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It is too long.
    #[error("a message of {size} bytes is longer than {MESSAGE_SIZE_MAX}")]
    TooLong {
        /// Its length.
        size: usize,
    },
    /// It is none of this version.
    #[error("{size} bytes are no message of this version")]
    Malformed {
        /// Its length.
        size: usize,
    },
}

/// A message as it is sent.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let body = postcard::to_allocvec(message).expect("a message in memory has a length, and memory grows");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// Takes messages out of a stream of bytes that is cut anywhere.
#[derive(Debug, Default)]
pub struct Incoming {
    bytes: Vec<u8>,
    taken: usize,
}

impl Incoming {
    /// Further bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message.
    ///
    /// # Errors
    /// If the bytes make none: nothing that follows can be read then.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, MessageError> {
        let rest = &self.bytes[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let size = u32::from_le_bytes(*length) as usize;
        if size > MESSAGE_SIZE_MAX {
            return Err(MessageError::TooLong { size });
        }
        let Some(body) = rest.get(..size) else {
            return Ok(None);
        };
        let message = match postcard::take_from_bytes(body) {
            Ok((message, [])) => message,
            _ => return Err(MessageError::Malformed { size }),
        };
        self.taken += 4 + size;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages come out whole and in order, wherever the stream is cut.
    #[test]
    fn messages_are_whole_wherever_the_stream_is_cut() {
        let messages = [
            FromHelper::Ready {
                version: "4.2.2".into(),
            },
            FromHelper::Fence {
                token: 7,
                members: vec![Process {
                    namespace: "job".into(),
                    rank: None,
                }],
                tag: String::new(),
                data: vec![0; 300],
                constructs_group: false,
            },
        ];
        let stream: Vec<u8> = messages.iter().flat_map(encode).collect();
        for size in [1, 3, 100, stream.len()] {
            let mut incoming = Incoming::default();
            let mut found: Vec<FromHelper> = Vec::new();
            for piece in stream.chunks(size) {
                incoming.push(piece);
                while let Some(message) = incoming.next_message().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, messages, "pieces of {size}");
        }
    }

    /// A length that no message has ends the stream.
    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let mut incoming = Incoming::default();
        incoming.push(&[0xff; 4]);
        let size = u32::MAX as usize;
        assert_eq!(
            incoming.next_message::<FromHelper>(),
            Err(MessageError::TooLong { size })
        );
    }
}
