//! Contributions whose bytes can be made again.

use std::{collections::BTreeMap, fmt, io, sync::Arc};

use ropewalk_reduce_core::{Contributions, Member, Session, Token};

/// A contribution whose bytes can be made again, range by range, by every rank that holds it: a file that all ranks can
/// read, or a function of its position.
///
/// All ranks that hold it have to read the same bytes.
pub trait Source: Send + Sync + 'static {
    /// Reads the bytes from `offset` on, which fill `into`. It is called on the job's progress thread, for ranges of
    /// whole elements and at most a mebibyte, and for some of them more than once.
    ///
    /// # Errors
    /// If the bytes cannot be read. The reduction then ends on all ranks with
    /// [`ReductionError::Source`](crate::ReductionError::Source), which has the text of the error: it should name the
    /// file.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Shows these bytes in memory where they are already, as that of a mapped file, so that they need not be copied.
    /// Returns `false`, as it does by default, if it has not called `borrower` and they have to be [read](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read); what the borrower has got is then not used.
    fn lend(&self, offset: u64, length: usize, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let _ = (offset, length, borrower);
        Ok(false)
    }
}

/// The contributions of a [reduction of sources](crate::Group::reduce_sources) that this rank can read.
#[derive(Clone, Default)]
pub struct Sources {
    /// The number of contributions in the reduction, the same on all ranks.
    pub members: u32,
    /// Bytes of each of them.
    pub bytes: u64,
    /// Those that this rank can read, by their numbers, counted from 0.
    pub held: BTreeMap<u32, Arc<dyn Source>>,
}

impl Sources {
    /// The most contributions in a reduction of sources.
    pub const MEMBERS_MAX: u32 = Contributions::SHARED_MAX;

    pub(crate) fn is_valid(&self) -> bool {
        (1..=Self::MEMBERS_MAX).contains(&self.members)
            && self.held.keys().all(|member| *member < self.members)
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("members", &self.members)
            .field("bytes", &self.bytes)
            .field("held", &self.held.keys())
            .finish()
    }
}

/// The token of a contribution that ranks share: all of them have to name the same one.
pub(crate) fn shared_token(session: Session, member: Member) -> Token {
    let mut hasher = blake3::Hasher::new_derive_key("ropewalk 2026-11 token of a shared contribution");
    for number in [session.group, session.call, u64::from(member.0)] {
        hasher.update(&number.to_le_bytes());
    }
    let mut token = [0; 16];
    hasher.finalize_xof().fill(&mut token);
    Token(u128::from_le_bytes(token))
}
