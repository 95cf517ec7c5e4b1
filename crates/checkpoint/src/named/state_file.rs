//! Reading files of named state.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use ropewalk_checkpoint_core::{STATE_PREFIX, StateHeader};

use super::error::RunError;
use crate::store::rank_name;

/// A file of named state whose header is read.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    header: StateHeader,
    offsets: Vec<u64>,
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
        let mut offsets = header.offsets();
        let (expected, found) = (offsets.pop(), file.metadata().map_err(cannot)?.len());
        if expected != Some(found) {
            return Err(cannot(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(Self {
            file,
            header,
            offsets,
        })
    }

    /// The entries.
    pub(super) fn header(&self) -> &StateHeader {
        &self.header
    }

    /// Reads bytes of an entry, from an offset in it on.
    pub(super) fn read_at(&self, name: &str, from: u64, room: &mut [u8]) -> io::Result<()> {
        let named = self.header.entries().iter().zip(&self.offsets);
        let found = named.into_iter().find(|(entry, _)| entry.name() == name);
        let (_, offset) = found.ok_or(io::ErrorKind::NotFound)?;
        self.file.read_exact_at(room, offset + from)
    }

    /// The hash of the bytes of an entry.
    pub(super) fn digest(&self, index: usize) -> io::Result<[u8; 32]> {
        let (mut at, mut left) = (self.offsets[index], self.header.entries()[index].bytes());
        let mut piece = vec![0; left.min(PIECE) as usize];
        let mut hasher = blake3::Hasher::new();
        while left > 0 {
            piece.truncate(left.min(PIECE) as usize);
            self.file.read_exact_at(&mut piece, at)?;
            hasher.update(&piece);
            at += piece.len() as u64;
            left -= piece.len() as u64;
        }
        Ok(*hasher.finalize().as_bytes())
    }
}

/// True if the folder of a generation holds named state with partitioned arrays. All ranks mark the same ones.
pub(crate) fn is_partitioned(generation: &Path) -> bool {
    let path = generation.join(rank_name(0)).join(STATE_FILE);
    StateFile::open(&path).is_ok_and(|file| file.header.is_partitioned())
}

/// The name of the file in the folder of a save.
pub(super) const STATE_FILE: &str = "state";

/// The part of an entry that is hashed at once.
const PIECE: u64 = 1 << 20;
