//! The names of things in a job: ranks, hosts, incarnations, epochs, addresses, region handles.
//!
//! Plain data that several crates hand to each other. Nothing here does I/O, keeps time or draws randomness.
//!
//! # Examples
//! ```
//! use ropewalk_names::{Identity, Incarnation, Rank, Role};
//!
//! // The second process of rank 3. The compiler takes no incarnation for a rank.
//! let identity = Identity {
//!     role: Role::Rank,
//!     rank: Rank(3),
//!     incarnation: Incarnation(0).next(),
//! };
//! assert_eq!(Identity::decode(identity.encode()), Some(identity));
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod counters;
mod held;
mod identity;
mod ids;
mod region;
mod trace;

pub use counters::{ReductionCounters, SchedulerLoad};
pub use held::{Held, HoldId};
pub use identity::{Identity, Role};
pub use ids::{Epoch, HostId, Incarnation, JobId, Rank};
pub use region::{Address, AddressError, RegionHandle};
pub use trace::{Progress, SpanKind, TraceEvent};
