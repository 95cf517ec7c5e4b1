//! The shared memory of two processes on one host, besides the UNIX socket between them.

mod bells;
mod channel;
mod credentials;
// It is to be plugged in.
#[allow(dead_code)]
mod direct;
mod layout;
mod liveness;
mod offer;
mod ring;
mod ring_memory;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    channel::Channel,
    credentials::Credentials,
    direct::{Ended, OwnMemory, PeerMemory, Transfers, Writer, WritingWord},
    liveness::own_page,
    offer::{DESCRIPTORS_MAX, Offer},
};
#[cfg(feature = "fuzzing")]
pub(crate) use self::{direct::fuzz_board, ring::fuzz_ring};
