//! Reductions that finish, exactly, when processes die in the middle.
//!
//! Every rank of a [`Group`] contributes a value; one, the root, gets what the values are combined to. The vector is
//! cut into chunks, which stream through trees of ranks. A scheduler lays out the trees from who is there, and anew
//! for the chunks that are left when a rank is lost. A contribution is kept by the agent of its host too, so that a
//! process may be killed at any moment after its call, and the result is exact. After C. Li, C. Zhao, H. Yan et
//! al., "High-performance distributed reduction framework for complex environments".
//!
//! [`Job::from_env`] and [`Group::reduce`] are where to begin. [`Group::reduce_buffer`] needs no copy of the
//! contribution, [`Group::allreduce`] gives the result to all, and [`Group::reduce_sources`] takes contributions
//! that several ranks can read or [make](Sources::from_fn). [`Group::broadcast`], [`Group::gather`],
//! [`Group::allgather`] and [`Group::reduce_scatter`] survive the same, [`Group::barrier`] is a reduction of nothing,
//! and [`Group::split`] makes groups. All that is decided is decided in `ropewalk-reduce-core`, which `ropewalk-sim`
//! drives in virtual time; memory, messages and time around it are here.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod buffer;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the effects around what is decided"
)]
mod driver;
mod folding;
pub mod ids;
mod message;
mod operation;
mod ordered_fold;
mod outcome;
mod signature;
mod source;

pub use buffer::Buffer;
pub use driver::{
    Barrier, BootstrapError, BufferReduction, Group, Job, LeaveError, Outcome, Protection, ReduceError,
    ReduceOptions, Reduction,
};
pub use operation::{
    DecodeError, Max, Min, Number, ObjectReducer, Operation, Prod, Reducer, Sum, elementwise, object,
};
pub use ordered_fold::{FoldFailed, ordered_fold};
pub use outcome::{Receipt, ReductionError};
pub use ropewalk_fabric::SpanKind;
pub use ropewalk_names::Rank;
pub use signature::{OnLoss, Order, RootFailure};
pub use source::{Source, Sources};
