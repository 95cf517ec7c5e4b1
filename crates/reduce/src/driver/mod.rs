//! The effects around the core: memory, messages, time, and the user's side of a reduction.

mod agent;
mod arrivals;
mod bootstrap;
mod contribution;
mod copies;
mod group;
mod inherited;
mod job;
mod lines;
mod outbox;
mod peers;
mod procedures;
mod progress;
mod reduction;
mod roads;
mod seat;
mod session;
mod sites;
mod trace;

pub use self::{
    bootstrap::BootstrapError,
    group::{Group, Protection, ReduceOptions},
    job::Job,
    reduction::{Outcome, ReduceError, Reduction},
};
