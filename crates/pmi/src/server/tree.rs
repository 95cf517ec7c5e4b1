//! The messages between the servers of a job's agents, along the tree.

use std::fmt;

use bstr::BString;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{GroupId, Process};
use crate::{RankSet, Spawn};

/// Keys with their values.
pub type KeyValuePairs = Vec<(BString, BString)>;

/// A message from a server to the one above it. To be delivered in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// A process, here or below, wants to know or to have something that only the root can say.
    Ask {
        /// To be repeated in the answer.
        id: u64,
        /// The question.
        question: Question,
    },
    /// Ranks are gone.
    Departed {
        /// Their group.
        group: GroupId,
        /// Which.
        ranks: RankSet,
        /// How.
        how: Absence,
    },
    /// Ranks wait in a fence. A server waits for all below it before it says so.
    Fence {
        /// Their group.
        group: GroupId,
        /// Which fence.
        fence: FenceId,
        /// Which ranks.
        members: RankSet,
        /// The pairs that were put here and below since the last time.
        pairs: KeyValuePairs,
    },
    /// Part of what was put, ahead of a fence: all would make too large a message.
    Pairs {
        /// Whose key-value space.
        group: GroupId,
        /// The pairs that were put.
        pairs: KeyValuePairs,
    },
    /// A rank that was gone has a new process.
    Returned {
        /// The rank.
        process: Process,
    },
}

/// How a process comes to be gone, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Absence {
    /// It closed its connection.
    Closed,
    /// It failed.
    Failed,
    /// Its agent is lost, and so nobody replaces it.
    AgentLost,
}

/// A message from a server to those below it. To be delivered in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// To [`Up::Ask`].
    Answer {
        /// The question's.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// Ranks failed.
    Departed {
        /// Their group.
        group: GroupId,
        /// Which.
        ranks: RankSet,
    },
    /// A fence is over.
    Fence {
        /// The group.
        group: GroupId,
        /// Which fence.
        fence: FenceId,
        /// Who was in it. Others who wait go on waiting, for the next one.
        members: RankSet,
        /// Who is gone, so that it cannot complete.
        failed: Option<u32>,
        /// The pairs that all put.
        pairs: KeyValuePairs,
    },
    /// Part of what all put, ahead of the end of a fence.
    Pairs {
        /// Whose key-value space.
        group: GroupId,
        /// The pairs that were put.
        pairs: KeyValuePairs,
    },
    /// The root knows that a rank has a new process.
    Returned {
        /// The rank.
        process: Process,
    },
}

/// Which of a group's fences.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FenceId {
    /// Who takes part.
    pub scope: FenceScope,
    /// The word that tells it from others with the same members.
    pub tag: BString,
}

/// Who takes part in a fence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FenceScope {
    /// The ranks of one node.
    Node,
    /// These ranks.
    Ranks(RankSet),
    /// All ranks of the group.
    World,
}

impl FenceId {
    /// The fence of all, without a word.
    pub const WORLD: Self = Self {
        scope: FenceScope::World,
        tag: BString::new(Vec::new()),
    };

    /// Parses a fence that PMI 1.2 writes as `WORLD:word`, `NODE:word` or `0,1,5:word`; the colon and the
    /// word may be missing.
    pub fn parse(group: &[u8]) -> Option<Self> {
        let colon = group.iter().position(|&byte| byte == b':');
        let (scope, tag) = match colon {
            Some(colon) => (&group[..colon], &group[colon + 1..]),
            None => (group, &group[..0]),
        };
        let scope = match scope {
            b"NODE" => FenceScope::Node,
            b"WORLD" => FenceScope::World,
            ranks => {
                let ranks = std::str::from_utf8(ranks).ok()?.split(',');
                let ranks: Result<RankSet, _> = ranks.map(str::parse::<u32>).collect();
                FenceScope::Ranks(ranks.ok()?)
            }
        };
        let tag = tag.into();
        Some(Self { scope, tag })
    }
}

impl fmt::Display for FenceId {
    /// As [`parse`](Self::parse) reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scope {
            FenceScope::Node => f.write_str("NODE")?,
            FenceScope::World => f.write_str("WORLD")?,
            FenceScope::Ranks(ranks) => {
                let ranks: Vec<_> = ranks.iter().map(|rank| rank.to_string()).collect();
                f.write_str(&ranks.join(","))?;
            }
        }
        match self.tag.is_empty() {
            true => Ok(()),
            false => write!(f, ":{}", self.tag),
        }
    }
}

/// A question that only the root can answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Is there a group with this key-value space?
    Connect {
        /// The key-value space.
        kvsname: BString,
    },
    /// What is under a key of another group's key-value space?
    Get {
        /// The key-value space.
        kvsname: BString,
        /// The key.
        key: BString,
    },
    /// Which port was published?
    Lookup {
        /// The name.
        service: BString,
    },
    /// Make a port known.
    Publish {
        /// The name.
        service: BString,
        /// The port.
        port: BString,
    },
    /// Start processes.
    Spawn {
        /// For whom.
        from: Process,
        /// Which.
        spawn: Spawn,
    },
    /// Forget a name.
    Unpublish {
        /// The name.
        service: BString,
    },
}

/// An answer of the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Connect`], [`Question::Publish`] and [`Question::Unpublish`].
    Done {
        /// True if there is such a group, or if the name was published or forgotten.
        done: bool,
    },
    /// The name server that several jobs share did not do it.
    Failed {
        /// Why.
        reason: BString,
    },
    /// Nobody can say any more: the tree is broken.
    Lost,
    /// To [`Question::Spawn`].
    Spawned(Result<Spawned, SpawnRefused>),
    /// To [`Question::Get`] and [`Question::Lookup`].
    Value {
        /// The value that was asked for, if it is there.
        value: Option<BString>,
    },
}

/// A process group was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// Its key-value space.
    pub kvsname: BString,
    /// The error code of each process, 0 if it was started; empty if all were.
    pub errcodes: Vec<i32>,
}

/// A process group was not started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRefused {
    /// Why.
    pub reason: BString,
}

/// Bytes between agents that make no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{size} bytes from another agent are no PMI message of this version")]
pub struct TreeMessageError {
    /// How many bytes.
    size: usize,
    source: postcard::Error,
}

macro_rules! tree_message {
    ($type:ident) => {
        impl $type {
            /// The message as bytes.
            pub fn to_bytes(&self) -> Vec<u8> {
                postcard::to_allocvec(self).expect("a message in memory has a length, and memory grows")
            }

            /// The message that another agent wrote.
            ///
            /// # Errors
            /// If the bytes are not the whole of one.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, TreeMessageError> {
                let size = bytes.len();
                let failed = |source| TreeMessageError { size, source };
                match postcard::take_from_bytes(bytes) {
                    Ok((message, [])) => Ok(message),
                    Ok(_) => Err(failed(postcard::Error::DeserializeBadEncoding)),
                    Err(source) => Err(failed(source)),
                }
            }
        }
    };
}

tree_message!(Down);
tree_message!(Up);
