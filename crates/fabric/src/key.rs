//! The secret that the keys of a job's processes are made of.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The 32-byte secret of a job, drawn by its launcher; wiped from memory when dropped, never printed. Launcher and
/// agents have it, ranks have not. It makes the [key of any member](crate::MemberKey), so its holders can pose as
/// anybody.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// A new key from the operating system's random numbers.
    ///
    /// # Errors
    /// If the operating system has none to give.
    pub fn generate() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes))
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for handing the key on over a trusted descriptor and for proving its possession.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}
