//! Deterministic simulation of processes on hosts that send each other messages.
//!
//! A [`Simulation`] is a virtual clock and a queue of events, keyed by time and order of arrival. A [`Network`]
//! delivers messages between hosts: each host has a link out and a link in, with rates of their own, and messages
//! queue in both. Faults are changes of the network and of processes: [`Simulation::kill`], [`Simulation::freeze`],
//! [`Simulation::cut`] and [`Network::set_rate_in`]. A [`Dice`] draws everything that is random from one seed.
//!
//! A [`World`] is what the events happen to: processes with their machines. [`reduction`] has reductions in virtual
//! time, [`launch`] whole jobs from their start to the verdict, [`views`] members that agree on who belongs to a job.
//!
//! The same calls in the same order give the same events at the same times: [`Simulation::digest`] tells two runs
//! apart.
//!
//! # Examples
//! Two hosts, 1 MB/s, 1 ms apart: a message of 1,000 bytes takes 2 ms.
//! ```
//! use ropewalk_sim::{Host, Nanos, Network, Process, Simulation};
//!
//! let network = Network::uniform(2, 1e6, Nanos::from_millis(1));
//! let mut simulation = Simulation::new(network, vec![Host(0), Host(1)]);
//! simulation.send(Process(0), Process(1), 1_000, "hello");
//! let event = simulation.next().unwrap();
//! assert_eq!((event.process, event.what), (Process(1), "hello"));
//! assert_eq!(event.at, Nanos::from_millis(2));
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

pub mod baseline;
mod dice;
pub mod launch;
mod nanos;
mod network;
pub mod reduction;
mod seeds;
mod simulation;
pub mod views;

pub use self::{
    dice::Dice,
    nanos::Nanos,
    network::Network,
    seeds::seed_lines,
    simulation::{Event, Host, Process, Simulation, World},
};
