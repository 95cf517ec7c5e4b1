//! Who a process is.

use ropewalk_group::{Incarnation, Rank};
use serde::{Deserialize, Serialize};

/// Who a process is in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// What it does in the job.
    pub role: Role,
    /// Its rank, or the number of its host for an agent.
    pub rank: Rank,
    /// Which life of it this is.
    pub incarnation: Incarnation,
}

/// What a process does in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The agent of a host.
    Agent,
    /// The launcher.
    Launcher,
    /// A rank of the program.
    Rank,
}
