//! Remote procedure calls over the fabric.
//!
//! An [`Engine`] serves [`Procedure`]s to its peers and calls theirs: typed arguments, a deadline on every
//! call, errors when the peer dies. Large data does not travel in arguments: the caller exposes it and puts
//! the [`RegionHandle`] into the arguments, the one that is called pulls or pushes (Mercury, section III).
//!
//! Two engines of one process, each as a process of its own would have it:
//!
//! ```
//! use std::time::Duration;
//!
//! use ropewalk_names::{Incarnation, JobId, Rank};
//! use ropewalk_rpc::{Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, Role, thread::Driver};
//!
//! struct Add;
//!
//! impl Procedure for Add {
//!     const NAME: &'static str = "example.add";
//!     type Input = (u32, u32);
//!     type Output = u32;
//! }
//!
//! let key = JobKey::generate()?;
//! let engine = |rank| {
//!     let identity = Identity { role: Role::Rank, rank: Rank(rank), incarnation: Incarnation(0) };
//!     Endpoint::bind(EndpointOptions::new(JobId([7; 16]), key.clone(), identity)).map(Engine::new)
//! };
//! let mut target = engine(0)?;
//! target.serve::<Add>(|_caller, (a, b)| Ok(a + b));
//! let address = target.address().clone();
//! let (_driver, _handle) = Driver::spawn(target)?;
//!
//! let mut origin = engine(1)?;
//! let call = origin.call::<Add>(&address, &(2, 3), Duration::from_secs(5))?;
//! assert_eq!(origin.block_on(call)?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod arrivals;
mod blocking;
mod bulk;
mod byte_buf;
mod call;
mod cancellation;
mod context;
mod deferred;
mod engine;
mod error;
mod executed;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handle;
mod hedged;
mod hedging;
mod input;
mod latency;
mod lock;
mod metrics;
mod observed;
mod once;
mod oneshot;
mod operations;
mod options;
mod outputs;
mod procedure;
#[cfg(feature = "prometheus")]
mod prometheus;
mod promise;
mod reply;
mod responder;
mod spin;
mod tasks;
pub mod thread;
mod timers;
mod timing;
#[cfg(feature = "tokio")]
pub mod tokio;
mod unsent;
mod wire;

pub use bulk::{
    Amount, BulkHandle, BulkHandleError, BulkSegment, Chunk, ChunkToFill, Pipeline, PipelinedChunks,
    PulledChunks, PushedChunks,
};
pub use byte_buf::ByteBuf;
pub use call::{Call, Transfer};
pub use cancellation::Cancellation;
pub use context::CallContext;
pub use engine::{Batch, Engine, InProgress, LostPeer};
pub use error::{BusyReason, CallError, Fault, TransferError};
pub use handle::{Handle, HandleCall, HandleError, With};
pub use hedged::{Hedge, HedgedCall, HedgedError};
pub use latency::LatencyHistogram;
pub use metrics::{
    CallCounts, FailureCounts, MessageBytes, Metrics, NotificationCounts, ProcedureMetrics, RequestCounts,
    TransferCounts,
};
pub use options::{CallOptions, EngineOptions};
pub use procedure::Procedure;
pub use responder::{Caller, Responder};
pub use timers::Sleep;
pub use timing::CallTiming;

pub use ropewalk_fabric::{
    AccessError, Address, BindError, Buffer, Endpoint, EndpointOptions, HandshakeError, HeartbeatCounts,
    Identity, JobKey, Limits, MemberKey, Peer, PeerDeath, PeerId, RegionHandle, Role, SubmitError, ToPeer,
    Transports, Waker, Withdrawn,
};

/// As [`Endpoint::bind`], with every provider that this build has: with the feature `ofi` also libfabric, for a
/// [`Transports::external`] of `ofi:PROVIDER`.
///
/// # Errors
/// As for that.
pub fn bind(options: EndpointOptions) -> Result<Endpoint, BindError> {
    #[cfg(feature = "ofi")]
    return ropewalk_fabric_ofi::bind(options);
    #[cfg(not(feature = "ofi"))]
    Endpoint::bind(options)
}
