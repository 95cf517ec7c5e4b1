//! Errors of runs whose state is saved by name.

use std::{io, path::PathBuf};

use ropewalk_checkpoint_core::{PartitionError, StateHeaderError, StateMismatch};
use thiserror::Error;

use crate::{coordination::CoordinationError, store_error::StoreError};

/// Why the named state of a run could not be saved or restored. All saves made before stay as they are.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// Neither the caller nor a launcher names a directory.
    #[error(
        "no directory was given for the saves: name one, or start the program by `ropewalk run --checkpoint DIR`"
    )]
    NoDirectory,
    /// Ranks save together, and no start has a name.
    #[error(
        "the program is rank {rank} of {ranks}, and ranks that save together need the name of this start of the job: \
         start them by `ropewalk run --checkpoint DIR`, or give all of them the same text, another one at each start"
    )]
    NoStart {
        /// This rank.
        rank: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// The rank is not below the number of ranks.
    #[error("rank {rank} of {ranks} does not exist: the rank has to be below the number of ranks")]
    Rank {
        /// This rank.
        rank: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state cannot be described.
    #[error(transparent)]
    Header(#[from] StateHeaderError),
    /// The program has another state than the save.
    #[error(
        "cannot restore: {0}. Nothing was changed; start the program that saved it, or name another directory"
    )]
    Mismatch(StateMismatch),
    /// Another rank cannot restore.
    #[error("rank {rank} cannot restore its state, so this rank does not either: {text}")]
    OtherRank {
        /// The other rank.
        rank: u32,
        /// Its error.
        text: String,
    },
    /// The ranks of the job name other partitioned arrays.
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// A file is not seen here, or is another one than another rank sees.
    #[error(
        "{} is not the file that rank {saved_rank} saved, or does not exist on this host: all ranks have to see one \
         directory with the parts of all ranks, where partitioned arrays are distributed in another way than before",
        .path.display()
    )]
    NotSeen {
        /// The file.
        path: PathBuf,
        /// The rank that saved it.
        saved_rank: u32,
    },
    /// The save was made by other means.
    #[error(
        "{} does not exist: this directory holds files that a program saved by itself, and no named state",
        .0.display()
    )]
    NoNamedState(PathBuf),
    /// The file of the state cannot be read.
    #[error("cannot read the named state {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The journal of the advisor cannot be used.
    #[error("cannot use the journal {}", .path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The ranks cannot agree on when to save.
    #[error("cannot learn from rank 0 when to save, through {}: all ranks have to see this directory", .path.display())]
    Decisions {
        /// The file with the decisions of rank 0.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The ranks cannot tell each other whether they can restore.
    #[error("cannot agree with the other ranks on a restore")]
    Coordination(#[from] CoordinationError),
    /// Rank 0 ended without its last word.
    #[error("rank 0 has ended, which decides for all ranks when to save")]
    DeciderGone,
    /// The state was not restored, so that nothing can be saved.
    #[error("the run could not restore its state before: nothing is saved, so that nothing is lost")]
    Refused,
}

// Its text is in that of the error: as a cause it would be told twice.
impl From<StateMismatch> for RunError {
    fn from(error: StateMismatch) -> Self {
        Self::Mismatch(error)
    }
}

impl RunError {
    /// True if it is for lack of room on the disk.
    pub fn is_for_lack_of_room(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_for_lack_of_room())
    }

    /// True if the saved state and that of the program differ.
    pub fn is_mismatch(&self) -> bool {
        matches!(
            self,
            Self::Mismatch(_)
                | Self::OtherRank { .. }
                | Self::Partition(_)
                | Self::NotSeen { .. }
                | Self::NoNamedState(_)
                | Self::Header(_)
        )
    }
}
