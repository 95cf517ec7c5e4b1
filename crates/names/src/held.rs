//! Memory that an agent keeps for a rank, so that it outlives the rank's process.

use serde::{Deserialize, Serialize};

/// The name that a rank gives to memory it hands to the agent; unique in one life of the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HoldId(pub u64);

/// A piece of memory that an agent holds for a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The rank's name for it.
    pub id: HoldId,
    /// The rank's description of it, for its later readers; at most [`LABEL_SIZE_MAX`](Self::LABEL_SIZE_MAX) bytes.
    pub label: Vec<u8>,
}

impl Held {
    /// The largest label, in bytes.
    pub const LABEL_SIZE_MAX: usize = 4 << 10;
}
