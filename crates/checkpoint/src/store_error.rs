//! Why something about checkpoints could not be done.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::{coordination::CoordinationError, journal_file::is_for_lack_of_room};

/// Why a checkpoint could not be saved, found or restored. Those made before are as they were.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system refuses.
    #[error("cannot {action} {}; the checkpoints made before are as they were", .path.display())]
    Files {
        /// The operation that failed.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A checkpoint holds files and directories only.
    #[error("{} is neither a file nor a directory, which is all that a checkpoint can hold: leave it out",
        .0.display())]
    NotAFile(PathBuf),
    /// A file to be saved in place lies elsewhere.
    #[error("{} is not below {}, where the files of a checkpoint in place have to be", .path.display(),
        .root.display())]
    Outside {
        /// The file.
        path: PathBuf,
        /// Where it has to be.
        root: PathBuf,
    },
    /// More than a manifest can list.
    #[error("a checkpoint can have {FILES_MAX} files; this one has more: write fewer, larger ones")]
    TooManyFiles,
    /// A number that was used already.
    #[error("there is a generation {0} already; numbers have to rise")]
    Used(u64),
    /// A copy that differs from what was copied.
    #[error("{} is not what its manifest says: the copy is not used", .0.display())]
    Changed(PathBuf),
    /// Nothing that is whole has this number.
    #[error("there is no whole generation {0} here")]
    Missing(u64),
    /// The checkpoints here were saved by another number of ranks. All of them stay where they are.
    #[error(
        "{} holds checkpoints of {found} rank{}, and this job has {ranks}: start it with as many as before, or save \
         to another folder; only named arrays that are saved and restored as partitioned can go on with another \
         number",
        .directory.display(), if *.found == 1 { "" } else { "s" }
    )]
    OtherRanks {
        /// Where.
        directory: PathBuf,
        /// How many saved the newest generation.
        found: u32,
        /// How many there are now.
        ranks: u32,
    },
    /// Two processes would mix what they save.
    #[error(
        "another process saves as rank {rank} beside {}: give each rank its own number, and each job its own folder; \
         to look at checkpoints beside it, use `ropewalk checkpoints`; if that process is gone with its host, remove \
         this file",
        .path.display()
    )]
    SavedByAnother {
        /// As whom.
        rank: u32,
        /// The file that the other one has locked.
        path: PathBuf,
    },
    /// The thread that writes in the background has ended.
    #[error(
        "the thread that writes checkpoints has ended by a panic, whose message is above: nothing is saved any more"
    )]
    WriterGone,
    /// The other ranks could not be asked.
    #[error("cannot agree with the other ranks on a checkpoint")]
    Coordination(#[from] CoordinationError),
}

impl StoreError {
    /// Returns true if the error is for lack of room, so that the next save may succeed.
    pub fn is_for_lack_of_room(&self) -> bool {
        matches!(self, Self::Files { source, .. } if is_for_lack_of_room(source))
    }
}

/// Makes an error of the file system one of the store.
pub(super) fn cannot<T>(
    action: &'static str,
    path: impl Into<PathBuf>,
    result: io::Result<T>,
) -> Result<T, StoreError> {
    result.map_err(|source| StoreError::Files {
        action,
        path: path.into(),
        source,
    })
}

/// So many lines of some length fit in a manifest.
pub(super) const FILES_MAX: usize = 400_000;
