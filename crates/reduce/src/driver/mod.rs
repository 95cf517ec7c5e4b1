//! The effects around the pure machines: memory, messages, time, and the user's side of a reduction.

mod bootstrap;
mod contribution;
mod group;
mod job;
mod kept;
mod peers;
mod procedures;
mod progress;
mod pulls;
mod reduction;
mod trace;

pub use self::{
    bootstrap::BootstrapError,
    group::{Group, ReduceOptions},
    job::Job,
    reduction::{Outcome, ReduceError, Reduction},
};
