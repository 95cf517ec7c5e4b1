//! Lends the pure machines processes, sockets and clocks.

mod agent;
mod agent_process;
mod attempt;
mod attempts;
mod branch;
mod command_keeper;
mod descendants;
mod forked_agent;
mod idle_memory;
mod input;
mod interface;
mod interface_addresses;
mod interrupts;
mod keeper;
mod launch_error;
mod launcher;
mod layout;
mod mpi_programs;
mod name_server;
mod own_host;
mod process;
mod session;
mod shared_memory;
mod shared_names;
mod signals;
mod small_files;
mod starter;
mod suspension;
mod watched;

pub use agent_process::agent_main;
pub use interface_addresses::interface_addresses;
pub use launch_error::LaunchError;
pub use launcher::Launcher;
pub use layout::Layout;
pub use name_server::NameServer;
pub use own_host::is_own_host;
