//! What two processes on one host have between them besides a UNIX socket: shared memory.

// The stream provider is to take these parts up.
#![allow(dead_code)]

mod direct;
mod layout;
mod liveness;
mod ring;
mod ring_memory;
