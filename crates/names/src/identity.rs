//! Who a process is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Rank};

/// Who a process is in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The role of the process in the job.
    pub role: Role,
    /// Its rank, or the number of its host for an agent.
    pub rank: Rank,
    /// Which life of it this is.
    pub incarnation: Incarnation,
}

/// The role of a process in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The agent of a host.
    Agent,
    /// The launcher.
    Launcher,
    /// A rank of the program.
    Rank,
}

impl Identity {
    /// The size of an encoded identity in bytes.
    pub const SIZE: usize = 1 + 4 + 4;

    /// Role, rank and incarnation, little-endian: so an identity stands in greetings, and so keys are made of it.
    pub fn encode(self) -> [u8; Self::SIZE] {
        let role = match self.role {
            Role::Agent => 0,
            Role::Launcher => 1,
            Role::Rank => 2,
        };
        let [a, b, c, d] = self.rank.0.to_le_bytes();
        let [e, f, g, h] = self.incarnation.0.to_le_bytes();
        [role, a, b, c, d, e, f, g, h]
    }

    /// The identity that these bytes stand for; `None` if its role is none.
    pub fn decode([role, a, b, c, d, e, f, g, h]: [u8; Self::SIZE]) -> Option<Self> {
        let role = match role {
            0 => Role::Agent,
            1 => Role::Launcher,
            2 => Role::Rank,
            _ => return None,
        };
        Some(Self {
            role,
            rank: Rank(u32::from_le_bytes([a, b, c, d])),
            incarnation: Incarnation(u32::from_le_bytes([e, f, g, h])),
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank, incarnation, ..
        } = self;
        match self.role {
            Role::Agent => write!(f, "the agent of host {}", rank.0),
            Role::Launcher => f.write_str("the launcher"),
            Role::Rank => write!(f, "rank {rank} (incarnation {})", incarnation.0),
        }
    }
}
