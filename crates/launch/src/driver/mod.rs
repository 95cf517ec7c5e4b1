//! Lends the pure machines processes, sockets and clocks.

mod agent;
mod agent_process;
mod branch;
mod descendants;
mod input;
mod interface;
mod keeper;
mod launcher;
mod process;
mod session;
mod signals;
mod starter;
mod watched;

pub use agent_process::agent_main;
pub use launcher::{LaunchError, Launcher};
