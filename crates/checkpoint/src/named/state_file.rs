//! Reading files of named state.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use ropewalk_checkpoint_core::{STATE_PREFIX, StateHeader};

use super::{
    error::RunError,
    state::{Named, header_of},
};

/// A file of named state whose header is read.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    header: StateHeader,
}

impl StateFile {
    /// Opens a file and reads its header. The memory that it takes is bounded by the longest header.
    pub(super) fn open(path: &Path) -> Result<Self, RunError> {
        let cannot = |source| RunError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RunError::NoNamedState(path.to_owned()),
            _ => cannot(error),
        })?;
        let mut bytes = vec![0; STATE_PREFIX];
        file.read_exact_at(&mut bytes, 0).map_err(cannot)?;
        bytes.resize(StateHeader::length(&bytes)?, 0);
        file.read_exact_at(&mut bytes, 0).map_err(cannot)?;
        let header = StateHeader::parse(&bytes)?;
        let (expected, found) = (header.offsets().pop(), file.metadata().map_err(cannot)?.len());
        if expected != Some(found) {
            return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Self { file, header })
    }

    /// For each part of a state, the index of its entry in the file.
    pub(super) fn matching(&self, state: &[Named<'_>]) -> Result<Vec<usize>, RunError> {
        Ok(header_of(state)?.matching(&self.header)?)
    }

    /// Reads entries of the file into the parts of a state.
    pub(super) fn read_into(&self, state: &mut [Named<'_>], indices: &[usize]) -> io::Result<()> {
        let offsets = self.header.offsets();
        for (named, &index) in state.iter_mut().zip(indices) {
            let room = named.room(&self.header.entries()[index]);
            self.file.read_exact_at(room, offsets[index])?;
        }
        Ok(())
    }
}

/// The name of the file in the folder of a save.
pub(super) const STATE_FILE: &str = "state";
