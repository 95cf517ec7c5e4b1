//! The commands of `ropewalk` as a library; the executable of that name calls [`main`].
//!
//! The crate is for the executable. Programs use the crate `ropewalk`, which has a module for each system.

mod agent;
mod bars;
mod bench;
mod checkpoints;
mod command;
mod completions;
mod demo;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod info;
mod man;
mod nameserver;
mod openfoam;
mod page;
mod partner;
mod plan;
mod reduce;
mod rehearse;
mod run;
mod sim;
mod size;
mod table;
mod times;
mod watcher;

pub use command::main;
