//! The effects around the core: memory, messages, time, and the user's side of a reduction.

mod arrivals;
mod bootstrap;
mod contribution;
mod copies;
mod council;
mod group;
mod inherited;
mod job;
mod notices;
mod outbox;
mod peers;
mod procedures;
mod progress;
mod reduction;
mod seat;
mod session;
mod sites;
mod trace;

pub use self::{
    bootstrap::BootstrapError,
    group::{Group, Protection, ReduceOptions},
    job::{Job, LeaveError},
    reduction::{Outcome, ReduceError, Reduction},
};
