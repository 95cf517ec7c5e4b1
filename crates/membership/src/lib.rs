//! Who is in a job: process groups and membership.
//!
//! Everything here is pure: no socket, no clock, no thread. Whoever sees a process die (the host agent, by
//! its pidfd) tells a [`Membership`], which is the one owner of that fact and numbers each change with an
//! [`Epoch`](ropewalk_names::Epoch).
//!
//! Where nobody sees that, because no launcher of ours runs the job, its members decide among themselves: an
//! [`Agreement`] is one member's part in it, and a [`View`] is what they agree on. Members that take in others go on to
//! a new epoch together by a [`Handover`].

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod agreement;
#[cfg_attr(
    not(feature = "canaries"),
    allow(dead_code, reason = "bugs that only tests put back")
)]
pub mod canary;
mod handover;
mod membership;
mod process_group;
mod view;

pub use agreement::{Agreement, AgreementAction, AgreementMessage, AgreementTimes, Ballot, Stop, Word};
pub use handover::{Handover, HandoverAction};
pub use membership::{Cause, Departure, Membership};
pub use process_group::{GroupError, ProcessGroup};
pub use view::{View, ViewEpoch};
