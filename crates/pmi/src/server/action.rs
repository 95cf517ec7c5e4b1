//! The actions that a server asks for, and the names that it uses.

use bstr::BString;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Answer, BridgeToken, BridgedFence, Down, FenceId, Question, Up};
use crate::{DecodeError, MessageError, Spawn, SpawnError};

/// A process group of a job: 0 is the one that the job began with, others were spawned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupId(pub u32);

/// A rank of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// The group.
    pub group: GroupId,
    /// The rank in it.
    pub rank: u32,
}

/// One connection of a process. Its owner chooses the number, each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// An agent below this one. Its owner chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildId(pub u32);

/// A spawn that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpawnId(pub u64);

/// A question for the name server that several jobs share, which waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameQuestionId(pub u64);

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process that inherited it (`PMI_FD`).
    Process(Process),
    /// Some process of this group, which says itself which rank it is (`PMI_PORT` and `PMI_ID`).
    Port(GroupId),
    /// The only process of this group, which nobody started and which waits to be greeted (`-pmi_args`).
    Singleton(GroupId),
}

/// An action to be done for a [`Server`](crate::Server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process wants the whole job to end.
    Abort {
        /// Which.
        process: Process,
        /// With what exit code.
        exit_code: i32,
        /// Why, if it says so.
        message: Option<BString>,
    },
    /// Ask the name server that several jobs share, and say what it answers with
    /// [`handle_name_answer`](crate::Server::handle_name_answer). Only the root says so, and only with
    /// [`share_names`](crate::Server::share_names).
    AskNames {
        /// To be repeated in the answer.
        id: NameQuestionId,
        /// [`Question::Lookup`], [`Question::Publish`] or [`Question::Unpublish`].
        question: Question,
    },
    /// To [`ask_bridged`](crate::Server::ask_bridged).
    BridgedAnswer {
        /// The bridge's number.
        token: BridgeToken,
        /// The answer.
        answer: Answer,
    },
    /// To [`enter_bridged`](crate::Server::enter_bridged).
    BridgedFenceEnded {
        /// The bridge's number.
        token: BridgeToken,
        /// How it ended.
        end: BridgedFence,
    },
    /// Close a connection after what was sent on it.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// The first ranks wait in a fence of more than one node. Only the root says so, once for each time.
    FenceBegan {
        /// Their group.
        group: GroupId,
        /// Which fence.
        fence: FenceId,
    },
    /// A fence of more than one node is over. Only the root says so.
    FenceEnded {
        /// The group.
        group: GroupId,
        /// Which fence.
        fence: FenceId,
        /// How many ranks were in it.
        members: u32,
        /// Who is gone, so that it could not complete.
        failed: Option<u32>,
    },
    /// Somebody does not keep to the protocol; the connection is closed.
    Misbehaved {
        /// On which.
        connection: ConnectionId,
        /// Who, if known.
        process: Option<Process>,
        /// The breach of the protocol.
        error: ProtocolError,
    },
    /// A process put another value under a key that had one. The last one counts; a program rarely wants that.
    Overwritten {
        /// Which process.
        process: Process,
        /// The key.
        key: BString,
    },
    /// Send this to a process.
    Send {
        /// On which connection.
        connection: ConnectionId,
        /// Whole messages.
        bytes: Vec<u8>,
    },
    /// Start a process group, and say what came of it with
    /// [`handle_spawned`](crate::Server::handle_spawned). Only the root is asked.
    Spawn {
        /// To be repeated in the answer.
        id: SpawnId,
        /// For whom.
        from: Process,
        /// What.
        spawn: Spawn,
    },
    /// Tell an agent below.
    ToChild {
        /// Which.
        child: ChildId,
        /// What.
        message: Down,
    },
    /// Tell the agent above.
    ToParent {
        /// What.
        message: Up,
    },
}

/// How a process breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A message that is no request.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// Bytes that are no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Something before `cmd=init`.
    #[error("the first PMI command is init, not {command}")]
    NotInitialized {
        /// The command that came instead.
        command: &'static str,
    },
    /// A rank that is not of this host, or already connected.
    #[error("{rank} is no rank that may connect here")]
    Rank {
        /// The rank.
        rank: u32,
    },
    /// A spawn that makes no whole.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// More requests than [`REQUESTS_MAX`](crate::Server::REQUESTS_MAX) at a time.
    #[error("more than {} requests wait at a time", crate::Server::REQUESTS_MAX)]
    TooMany,
    /// A command that has no place here.
    #[error("{command} has no place here")]
    Unexpected {
        /// The command.
        command: &'static str,
    },
    /// A second request in a line before the answer to the first.
    #[error("a PMI-1 client has one request at a time, but {command} came while another waits")]
    WhileWaiting {
        /// The command that came.
        command: &'static str,
    },
}
