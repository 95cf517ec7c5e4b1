//! Who is in a job: ranks, process groups and membership.
//!
//! Everything here is pure: no socket, no clock, no thread. Whoever sees a process die (the host agent, by
//! its pidfd) tells a [`Membership`], which is the one owner of that fact and numbers each change with an
//! [`Epoch`].

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod ids;
mod membership;
mod process_group;

pub use ids::{Epoch, HostId, Incarnation, JobId, Rank};
pub use membership::{Cause, Departure, Membership};
pub use process_group::{GroupError, ProcessGroup};
