//! The PMIx server of a host: libpmix, loaded at run time in a process of its own.
//!
//! An agent runs [`helper_main`] as a child, so that the threads and the crashes of libpmix stay out of the agent.
//! The two speak over a socket, by the messages of `ropewalk_launch_core::pmix`; the helper decides nothing about the
//! job.
//!
//! The crate is a part of the process manager. Programs that speak PMIx are started by `ropewalk run` or
//! `ropewalk_launch::Launcher`, and call nothing here.

#![deny(missing_docs)]

mod construction;
mod helper;
mod known;
mod logs;
mod lookups;
mod meetings;
mod namespace;
mod queries;
mod sys;
mod wishes;

pub use helper::helper_main;
pub use sys::{LoadError, ServerError};
