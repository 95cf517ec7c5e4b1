//! That one process alone saves, or restores, as a rank.

use std::{fs::File, io};

use super::{
    files::Files,
    store::{StoreOptions, rank_name},
    store_error::{StoreError, cannot},
};

/// Several processes that save as the same rank would commit a mixture: so the first that saves or restores keeps the
/// others out, until it drops this or ends, however it ends. Of nothing but a file's lock, which goes with the process
/// and is not inherited by its children; nothing is written. Where the file system has no locks nobody is kept out.
#[derive(Debug)]
pub(super) struct SaverLock {
    _file: Option<File>,
}

impl SaverLock {
    /// Takes the lock of a rank. A process that has two stores open as the same rank gives it up with the
    /// first of them that it drops: a lock is the whole process's.
    pub(super) fn take(files: &impl Files, options: &StoreOptions) -> Result<Self, StoreError> {
        let rank = options.rank;
        let path = options.directory.join(format!("{}.lock", rank_name(rank)));
        match files.lock(&path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(StoreError::SavedByAnother { rank, path })
            }
            locked => Ok(Self {
                _file: cannot("lock", path, locked)?,
            }),
        }
    }
}
