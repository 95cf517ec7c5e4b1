//! The effects around the core: memory, messages, time, and the user's side of a reduction.

mod arrivals;
mod bootstrap;
mod contribution;
mod group;
mod inherited;
mod job;
mod outbox;
mod peers;
mod procedures;
mod progress;
mod reduction;
mod seat;
mod session;
mod trace;

pub use self::{
    bootstrap::BootstrapError,
    group::{Group, ReduceOptions},
    job::Job,
    reduction::{Outcome, ReduceError, Reduction},
};
