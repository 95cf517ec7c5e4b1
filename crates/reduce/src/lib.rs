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
//!
//! A program of one process is a job too; `ropewalk run -n 8 PROGRAM` makes it one of eight:
//!
//! ```
//! use ropewalk_reduce::{Job, Rank, ReduceOptions, Sum};
//!
//! let job = Job::from_env()?;
//! let mine = vec![f64::from(job.rank().0 + 1); 1000];
//! let sum = job.world().reduce(mine, Sum, Rank(0), &ReduceOptions::default())?;
//! // From here on this process may die: its contribution counts.
//! if let Some(sum) = sum.get()?.value {
//!     let ranks = f64::from(job.size());
//!     assert_eq!(sum[0], ranks * (ranks + 1.0) / 2.0);
//! }
//! job.finalize()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
    ReduceOptions, Reduction, Waiter,
};
pub use operation::{
    Accumulator, Bits, BitwiseAnd, BitwiseOr, BitwiseXor, Bool, DecodeError, ExactSum, Located, LogicalAnd,
    LogicalOr, LogicalXor, Max, MaxLoc, Min, MinLoc, Number, ObjectReducer, Operation, Ordered, Prod,
    Reducer, Sum, elementwise, object,
};
pub use ordered_fold::{FoldFailed, ordered_fold};
pub use outcome::{Receipt, ReductionError};
pub use ropewalk_fabric::SpanKind;
pub use ropewalk_names::{Rank, SchedulerLoad};
pub use signature::{OnLoss, Order, RootFailure};
pub use source::{Source, Sources};
