//! PMI, the process management interface, in its versions 1 and 2: wire format, server and client, without I/O.
//!
//! PMI is how the processes of a parallel program find each other: each puts what the others must know (an
//! address) into a key-value space, all meet in a fence, and then each gets what it needs (P. Balaji et al.,
//! *PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems*, EuroMPI 2010). This crate
//! speaks the wire protocols 1.1, 1.2 and 2.0 that MPICH, its descendants and Slurm use over an inherited descriptor.
//!
//! * [`Request`] and [`Response`] are the table of commands: codec and documentation follow from it.
//! * [`Server`] is the process manager's side: bytes in, [`Action`]s out, no input or output of its own. The servers
//!   of many hosts form a tree, along which they say [`Up`] and [`Down`].
//! * [`ClientCore`] is the program's side of a connection, as pure; the crate `ropewalk-pmi-client` drives it.
//!
//! # Examples
//! A client that asks for a value, in the lines of PMI-1:
//! ```
//! use ropewalk_pmi::{ClientCore, Dialect, Request, Response};
//!
//! let mut client = ClientCore::new(Dialect::Pmi1);
//! let asked = client.submit(&[Request::Get {
//!     kvsname: Some("job".into()),
//!     source: None,
//!     key: "address-1".into(),
//! }])?;
//! assert_eq!(client.take_outgoing(), b"cmd=get kvsname=job key=address-1\n");
//!
//! // The process manager answers.
//! client.handle_bytes(b"cmd=get_result rc=0 value=10.0.0.2:4000\n")?;
//! let (answered, response) = client.poll_response().ok_or("there is no response")?;
//! assert_eq!(answered, asked);
//! assert!(matches!(response, Response::Get { value: Some(value), .. } if value == "10.0.0.2:4000"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod client_core;
mod command;
mod key_value_space;
mod process_mapping;
mod rank_set;
mod server;
mod wire;

pub use client_core::{ClientCore, ClientCoreError, Dialect, RequestId};
pub use command::{
    Arguments, Command, DecodeError, Decoded, EncodeError, Pairs, Request, Response, Spawn, SpawnBlocks,
    SpawnCommand, SpawnCommands, SpawnError,
};
pub use key_value_space::{KeyValueSpace, PutError};
pub use process_mapping::{MappingBlock, MappingError, ProcessMapping};
pub use rank_set::RankSet;
pub use server::{
    Absence, AbsentMembers, Action, Answer, BridgeToken, BridgedFence, ChildId, ConnectionId, Down, FenceId,
    FenceScope, GroupId, GroupOptions, KeyValuePairs, NameQuestionId, Peer, Process, ProtocolError, Question,
    Server, SpawnId, SpawnRefused, Spawned, Stage, TreeMessageError, Up,
};
pub use wire::{Form, Message, MessageBuffer, MessageError};

/// The longest line in either direction, with its line end, unless it has a pair ([`PAIR_LINE_SIZE_MAX`]): MPICH's
/// clients read into 1024 bytes and end them with a NUL.
pub const LINE_SIZE_MAX: usize = 1023;
/// The longest line that puts a pair or has the value of one: the names, keys and values that are announced fit.
pub const PAIR_LINE_SIZE_MAX: usize =
    "cmd=put kvsname= key= value=\n".len() + KVSNAME_SIZE_MAX + KEY_SIZE_MAX + VALUE_SIZE_MAX;
/// The longest body of a frame: clients have 64 KiB for it and its length.
pub const FRAME_SIZE_MAX: usize = (64 << 10) - 6;
/// The longest block of `mcmd=spawn`.
pub const BLOCK_SIZE_MAX: usize = 1 << 20;
/// The longest name of a key-value space, as announced to clients.
pub const KVSNAME_SIZE_MAX: usize = 256;
/// The longest key, as announced to clients.
pub const KEY_SIZE_MAX: usize = 64;
/// The longest value, as announced to clients; MPICH's put none in a line that is longer than
/// [`LINE_VALUE_SIZE_MAX`].
pub const VALUE_SIZE_MAX: usize = 1024;
/// The longest value that clients of PMI-1 read whole in a line. They subtract from 1024 the announced sizes
/// of names and keys, and 30 bytes for the rest, and cut a longer value.
pub const LINE_VALUE_SIZE_MAX: usize = 1024 - KVSNAME_SIZE_MAX - KEY_SIZE_MAX - 30;
