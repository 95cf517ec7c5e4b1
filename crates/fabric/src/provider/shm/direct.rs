//! One-sided access to the memory of a process on the same host, without its help.
//!
//! An endpoint publishes its regions on a board that peers can only read. Who gets or puts looks there for the place,
//! proves to itself that the handle is good, and copies: from or to the arena, which it has mapped, or by the
//! kernel's `process_vm_readv` and `process_vm_writev`. What cannot be done like this is left to the messages.

pub(crate) use self::{
    own_memory::{OwnMemory, Writer},
    peer_memory::{MemoryOffer, PeerMemory},
    peer_process::Probe,
    transfers::{Ended, Transfers},
    writing_word::WritingWord,
};

#[cfg(feature = "fuzzing")]
pub(crate) use self::peer_memory::fuzz_board;

mod board_slot;
mod copy;
mod own_memory;
mod peer_memory;
mod peer_process;
mod region_board;
mod transfers;
mod writing_word;
