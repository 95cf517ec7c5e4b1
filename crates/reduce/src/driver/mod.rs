//! The effects around the core: memory, messages, time, and the user's side of a reduction.

mod account;
mod admission;
mod agent;
mod allreduce;
mod arrivals;
mod barrier;
mod bootstrap;
mod broadcast;
mod buffer_reduction;
mod carrier;
mod contribution;
mod copies;
mod council;
mod digests;
mod door;
mod early_chunks;
mod enclosed;
mod ending;
mod gather;
mod giving_up;
mod group;
mod hold;
mod host_card;
mod huge_pages;
mod inbox;
mod inherited;
mod job;
mod kind;
mod lent_memory;
mod lines;
mod notices;
mod other_launchers;
mod outbox;
mod own_parts;
mod passing;
mod peers;
mod procedures;
mod progress;
mod reduce_scatter;
mod reduction;
mod roads;
mod roster;
mod seat;
mod session;
mod sites;
mod split;
mod table_calls;
mod trace;
mod turns;

pub use self::{
    barrier::Barrier,
    bootstrap::BootstrapError,
    buffer_reduction::BufferReduction,
    group::{Group, Protection, ReduceOptions},
    job::{Job, LeaveError},
    reduction::{Outcome, ReduceError, Reduction, Waiter},
};
