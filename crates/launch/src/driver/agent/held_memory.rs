//! The memory that ranks have handed over, for the time when they are gone.

use std::io;

use bytes::Bytes;
use ropewalk_fabric::{Held, HoldId, LabelledMemfd, memfd::HeldMemfd};

/// Memory of a rank that lives.
#[derive(Debug)]
pub(super) enum HeldMemory {
    /// The rank has said what is in it.
    Described(HeldMemfd),
    /// It says itself if it counts, and what is in it.
    Labelled(HeldMemfd),
}

/// The memory when its rank is gone.
#[derive(Debug)]
pub(super) enum Left {
    /// It counts.
    Counts(Held, Bytes),
    /// It does not.
    Nothing(HoldId),
}

impl HeldMemory {
    /// Finds out what the rank has left in it. With an error it cannot be read: who wants to read what is known to have
    /// been in it is told so.
    pub(super) fn left(self, held: Held) -> (Left, Option<io::Error>) {
        match self {
            Self::Described(memory) => match memory.into_bytes() {
                Ok(bytes) => (Left::Counts(held, bytes), None),
                Err(error) => (Left::Counts(held, Bytes::new()), Some(error)),
            },
            Self::Labelled(memory) => match LabelledMemfd::left_in(memory) {
                Ok(Some((label, bytes))) => (Left::Counts(Held { label, ..held }, bytes), None),
                Ok(None) => (Left::Nothing(held.id), None),
                Err(error) => (Left::Nothing(held.id), Some(error)),
            },
        }
    }
}
