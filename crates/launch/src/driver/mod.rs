//! Lends the pure machines processes, sockets and clocks.

mod agent;
mod control;
mod descendants;
mod input;
mod launcher;
mod output;
mod rank_process;
mod rank_watch;
mod session;
mod watched;

pub use agent::agent_main;
pub use launcher::{LaunchError, Launcher};
