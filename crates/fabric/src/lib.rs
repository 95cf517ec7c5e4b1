//! Moves bytes between the processes of a job.
//!
//! An [`Endpoint`] is one process's end: it sends messages, exposes memory, and reads and writes what others
//! expose, to endpoints that have proven who they are in the same job. [`AgentLink`] joins a rank with
//! the agent of its host, and [`memfd`] is memory that outlives its process.
//!
//! A message from one endpoint to another of the same job:
//!
//! ```
//! use bytes::Bytes;
//! use ropewalk_fabric::{Endpoint, EndpointOptions, Event, Identity, JobKey, Role};
//! use ropewalk_names::{Incarnation, JobId, Rank};
//!
//! let key = JobKey::generate()?;
//! let bind = |rank| {
//!     let identity = Identity { role: Role::Rank, rank: Rank(rank), incarnation: Incarnation(0) };
//!     Endpoint::bind(EndpointOptions::new(JobId([7; 16]), key.clone(), identity))
//! };
//! let (mut origin, mut target) = (bind(0)?, bind(1)?);
//! let address = target.address().clone();
//! origin.send_unexpected(&address, 7, Bytes::from_static(b"a rope walk"))?;
//! loop {
//!     origin.progress();
//!     target.progress();
//!     if let Some(Event::Unexpected { tag, body, .. }) = target.poll_event() {
//!         assert_eq!((tag, &body[..]), (7, &b"a rope walk"[..]));
//!         break;
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agent_link;
mod arena;
mod body;
mod buffer;
mod call_table;
mod dense_map;
mod endpoint;
mod endpoint_options;
mod event;
mod fences;
mod fork_guard;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod inbox;
mod interfaces;
mod key;
mod key_file;
mod labelled_memfd;
mod lent_buffer;
mod limits;
mod loopback;
mod member_key;
pub mod memfd;
mod messages;
mod noise;
mod operations;
mod outgoing_message;
mod peer_table;
mod poller;
pub mod provider;
mod region_table;
mod streamed_copy;
mod waker;

pub use agent_link::{AgentLink, AgentLinkError, FromAgent, ToAgent, Welcome};
pub use arena::Block;
pub use body::Body;
pub use buffer::{Buffer, advise_huge_pages};
pub use call_table::{
    CallRows, CallSection, CallState, CallTable, CommonResult, Data, Post, Record, TablePlace, Taken,
};
pub use endpoint::{Endpoint, HeartbeatCounts, ToPeer};
pub use endpoint_options::{EndpointOptions, Transports, TransportsError};
pub use event::{BindError, Completion, Event, OperationError, OperationId, Peer, PeerDeath, SubmitError};
pub use frame::FrameError;
pub use handshake::HandshakeError;
pub use interfaces::{InterfaceAddress, address_towards, interface_addresses};
pub use key::JobKey;
pub use labelled_memfd::LabelledMemfd;
pub use lent_buffer::LentBuffer;
pub use limits::Limits;
pub use member_key::MemberKey;
pub use messages::{Messages, Received};
pub use peer_table::PeerId;
pub use provider::ProviderStatus;
pub use region_table::{AccessError, Withdrawn};
pub use ropewalk_names::{
    Address, AddressError, Held, HoldId, Identity, Progress, ReductionCounters, RegionHandle, Role, SpanKind,
    TraceEvent,
};
pub use waker::Waker;
