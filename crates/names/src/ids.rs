//! The names of things in a job, each its own type so that one is never passed for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number_newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_newtype! {
    /// The number of a process in its job, from 0 (MPI standard 4.0, section 6.2).
    Rank(u32)
}

number_newtype! {
    /// The number of a host in its job, from 0.
    HostId(u32)
}

number_newtype! {
    /// Which life of a rank this is: 0 for the first process, one more for each that replaces it.
    Incarnation(u32)
}

number_newtype! {
    /// The number of a membership; it grows by one with each change.
    Epoch(u64)
}

impl Rank {
    /// The rank as an index into a table of ranks.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl Incarnation {
    /// The life after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The identity of a job: 128 random bits drawn by its launcher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}
