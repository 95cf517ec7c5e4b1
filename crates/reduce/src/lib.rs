//! Reductions that finish, exactly, when processes die in the middle.
//!
//! Every rank of a [`Group`] contributes a value; one, the root, gets what the values are combined to. The
//! tree in which that happens is not laid out beforehand: a scheduler pairs whatever parts are ready, and the
//! parts are pulled from where they are. A contribution is kept by the agent of its host too, so that a process
//! may be killed at any moment after its call: what it had combined is combined again from the parts that are
//! left, and the result is exact. After C. Li, C. Zhao, H. Yan et al., "High-performance distributed reduction
//! framework for complex environments", whose steps are [`Policy::Paper`].
//!
//! [`Job::from_env`] and [`Group::reduce`] are where to begin. Below them stand two pure state machines, the
//! [`Scheduler`](scheduler::Scheduler) and the [`Worker`](worker::Worker), which know no socket, clock or thread;
//! the simulation in this crate's tests drives the same machines in virtual time.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod canonical_tree;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the effects around what is decided"
)]
mod driver;
pub mod ids;
pub mod message;
mod operation;
mod ordered_fold;
mod outcome;
mod pull_failure;
pub mod scheduler;
mod signature;
pub mod stripes;
pub mod worker;

pub use driver::{BootstrapError, Group, Job, Outcome, ReduceError, ReduceOptions, Reduction};
pub use operation::{
    DecodeError, Max, Min, Number, ObjectReducer, Operation, Prod, Reducer, Sum, elementwise, object,
};
pub use ordered_fold::{FoldFailed, ordered_fold};
pub use outcome::{Receipt, ReductionError};
pub use pull_failure::PullFailure;
pub use ropewalk_fabric::SpanKind;
pub use ropewalk_names::Rank;
pub use signature::{Order, Policy, Signature};
