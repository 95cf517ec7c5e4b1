//! `ropewalk reduce`: reduces array files on several processes.
//!
//! [`run`] is the command and starts the processes, each of which calls [`work`]. It starts them as
//! `reduce-worker`, a command of the executable that called it.

mod arrays;
mod command;
mod element;
mod input_file;
mod job;
mod mapping;
pub mod npy;
mod operator;
mod task;
mod watch;
mod word;
mod worker;

pub use command::{Arguments, run};
pub use worker::work;
