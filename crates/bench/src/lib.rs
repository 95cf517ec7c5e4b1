//! `ropewalk bench rpc`: remote calls and bulk transfers of this machine or cluster, beside what the machine can do.
//!
//! The crate is a part of the command, and not for programs. Programs make calls by the crate `ropewalk-rpc`.

#![deny(
    clippy::print_stdout,
    reason = "it panics if nobody takes the output, which `output::print` says"
)]

mod cases;
mod crowd;
mod floors;
mod gate;
mod origin;
pub mod output;
pub mod probes;
mod process;
mod protocol;
mod provider;
mod row;
mod rows;
mod rpc;
pub mod target;
mod timing;

pub use rpc::{Arguments, run};
