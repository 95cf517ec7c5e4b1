//! How the ranks of a job tell each other what they have.

use std::{
    fs, io,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use ropewalk_checkpoint_core::Holdings;
use thiserror::Error;

/// A way by which all ranks learn what each of them has. Every rank makes the same calls in the same order.
pub trait Coordination {
    /// Gives some bytes to all ranks and returns those of all, in order of rank. Waits for the slowest rank,
    /// but not for ever.
    ///
    /// # Errors
    /// If a rank does not come in time, or cannot be reached.
    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, CoordinationError>;

    /// The same for what the ranks hold.
    ///
    /// # Errors
    /// Those of [`share`](Self::share), and if a rank says something else.
    fn share_holdings(&mut self, own: &Holdings) -> Result<Vec<Holdings>, CoordinationError> {
        let bytes = postcard::to_allocvec(own).expect("numbers and lists of numbers can be encoded");
        let of_ranks = self.share(&bytes)?;
        let mut all = Vec::with_capacity(of_ranks.len());
        for (rank, bytes) in of_ranks.iter().enumerate() {
            let holdings = postcard::from_bytes(bytes)
                .map_err(|_| CoordinationError::Unreadable { rank: rank as u32 })?;
            all.push(holdings);
        }
        Ok(all)
    }
}

/// Why the ranks could not tell each other what they have.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CoordinationError {
    /// A rank did not say anything in time.
    #[error(
        "rank {rank} did not say within {patience:?} which checkpoints it has: {} does not exist; all ranks have to be \
         started, and to see this directory",
        .path.display()
    )]
    Late {
        /// Which.
        rank: u32,
        /// The file that it should have written.
        path: PathBuf,
        /// How long the others waited.
        patience: Duration,
    },
    /// A rank said something that cannot be understood.
    #[error("what rank {rank} says of its checkpoints cannot be read: is it another version?")]
    Unreadable {
        /// Which.
        rank: u32,
    },
    /// The files by which they meet cannot be used.
    #[error("cannot use {}", .path.display())]
    Files {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A job of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alone;

impl Coordination for Alone {
    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, CoordinationError> {
        Ok(vec![own.to_owned()])
    }
}

/// Ranks that see one directory, of one host or of a file system that several share.
#[derive(Clone, Debug)]
pub struct SharedDirectory {
    directory: PathBuf,
    rank: u32,
    ranks: u32,
    patience: Duration,
    rounds: u64,
}

impl SharedDirectory {
    /// The ranks meet in a folder of their own below the directory. Its name has to be new at every start of
    /// the job and the same for all ranks, or they would read the messages of ranks of an earlier start.
    pub fn new(
        directory: impl Into<PathBuf>,
        start: &str,
        rank: u32,
        ranks: u32,
        patience: Duration,
    ) -> Self {
        Self {
            directory: directory.into().join(format!("{MEETING}{start}")),
            rank,
            ranks,
            patience,
            rounds: 0,
        }
    }

    /// Removes what ranks of earlier starts said to each other, which nobody reads any more.
    fn forget_earlier_starts(&self) {
        let Some(entries) = self.directory.parent().and_then(|above| fs::read_dir(above).ok()) else {
            return;
        };
        let earlier = entries
            .filter_map(Result::ok)
            .filter(|entry| {
                entry
                    .file_name()
                    .as_encoded_bytes()
                    .starts_with(MEETING.as_bytes())
            })
            .map(|entry| entry.path())
            .filter(|path| *path != self.directory);
        for path in earlier {
            // It costs only room.
            let _ = fs::remove_dir_all(path);
        }
    }

    fn path(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("{}-{rank}", self.rounds))
    }
}

impl Coordination for SharedDirectory {
    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, CoordinationError> {
        let end = Instant::now() + self.patience;
        if self.rank == 0 && self.rounds == 0 {
            self.forget_earlier_starts();
        }
        let path = self.path(self.rank);
        let temporary = path.with_extension("tmp");
        let written = fs::create_dir_all(&self.directory)
            .and_then(|()| fs::write(&temporary, own))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| CoordinationError::Files { path, source })?;
        let mut all = Vec::new();
        for rank in 0..self.ranks {
            let path = self.path(rank);
            let bytes = loop {
                match fs::read(&path) {
                    Ok(bytes) => break bytes,
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(CoordinationError::Files { path, source: error });
                    }
                    Err(_) if Instant::now() >= end => {
                        return Err(CoordinationError::Late {
                            rank,
                            path,
                            patience: self.patience,
                        });
                    }
                    Err(_) => thread::sleep(PAUSE),
                }
            };
            all.push(bytes);
        }
        self.rounds += 1;
        Ok(all)
    }
}

/// The prefix of the names of the folders in which ranks meet.
pub(crate) const MEETING: &str = "meeting-";

/// Between two looks for what a rank says.
const PAUSE: Duration = Duration::from_millis(2);
