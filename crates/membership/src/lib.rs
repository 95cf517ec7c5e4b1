//! Who is in a job: process groups and membership.
//!
//! Everything here is pure: no socket, no clock, no thread. Whoever sees a process die (the host agent, by
//! its pidfd) tells a [`Membership`], which is the one owner of that fact and numbers each change with an
//! [`Epoch`](ropewalk_names::Epoch).
//!
//! Where nobody sees that, because no launcher of ours runs the job, its members decide among themselves: an
//! [`Agreement`] is one member's part in it, and a [`View`] is what they agree on. Members that take in others go on to
//! a new epoch together by a [`Handover`].
//!
//! # Examples
//! ```
//! use ropewalk_membership::{Cause, Membership};
//! use ropewalk_names::{Epoch, Incarnation, Rank};
//!
//! let mut membership = Membership::new(4);
//! let (rank, first) = (Rank(2), Incarnation(0));
//! let departure = membership.handle_departure(rank, first, Cause::Exited(1));
//! assert_eq!(departure.map(|departure| departure.epoch), Some(Epoch(1)));
//! // The same departure told twice changes nothing.
//! assert_eq!(membership.handle_departure(rank, first, Cause::Exited(1)), None);
//! // Another process takes the place of the rank.
//! assert!(membership.handle_return(rank, first.next()));
//! assert!(membership.is_alive(rank));
//! assert_eq!(membership.epoch(), Epoch(2));
//! ```

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
