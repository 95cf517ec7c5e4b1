//! Reductions that finish, exactly, when processes die in the middle.

pub mod canonical_tree;
pub mod ids;
pub mod message;
mod operation;
mod ordered_fold;
mod outcome;
pub mod scheduler;
mod signature;
pub mod stripes;
pub mod worker;

pub use operation::{
    DecodeError, Max, Min, Number, ObjectReducer, Operation, Prod, Reducer, Sum, elementwise, object,
};
pub use ordered_fold::{FoldFailed, ordered_fold};
pub use outcome::{Receipt, ReductionError};
pub use signature::{Order, Policy, Signature};
