//! Who is in a job: process groups and membership.
//!
//! Everything here is pure: no socket, no clock, no thread. Whoever sees a process die (the host agent, by
//! its pidfd) tells a [`Membership`], which is the one owner of that fact and numbers each change with an
//! [`Epoch`](ropewalk_names::Epoch).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod membership;
mod process_group;

pub use membership::{Cause, Departure, Membership};
pub use process_group::{GroupError, ProcessGroup};
