//! Copying from other hosts: parts of checkpoints, and the journal.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Duration,
};

use bytes::Bytes;
use ropewalk_checkpoint_core::{Manifest, Place, partner::Part};
use ropewalk_rpc::{Address, CallError, Handle, HandleCall};

use crate::{depot::Depot, store_error::StoreError};

use super::{
    blocking::wait_for,
    journals,
    partner_error::PartnerError,
    procedures::{Listing, Piece, ReadJournal, ReadManifest, ReadPiece, Stock},
    service::lock,
};

/// Copies parts from other hosts.
pub(super) struct Copier<'a> {
    pub(super) handle: &'a Handle,
    pub(super) depot: &'a Mutex<Depot>,
    pub(super) addresses: &'a [Address],
    pub(super) names: &'a [String],
}

impl Copier<'_> {
    /// Asks a host for the parts that it has by its manifests, and returns the pending call.
    pub(super) fn ask(&self, host: usize) -> HandleCall<Stock> {
        self.handle
            .call::<Listing>(&self.addresses[host], (), ASK_TIMEOUT)
    }

    fn call_failed(&self, host: usize) -> impl Fn(CallError) -> PartnerError {
        let host = self.names[host].clone();
        move |source| PartnerError::Call {
            host: host.clone(),
            source,
        }
    }

    fn journal(&self, from: usize) -> Result<Bytes, PartnerError> {
        let address = &self.addresses[from];
        let text = self
            .handle
            .call_blocking::<ReadJournal>(address, (), PIECE_TIMEOUT);
        text.map_err(self.call_failed(from))
    }

    /// Keeps a copy of the journal that a host writes.
    pub(super) fn copy_journal(&self, from: usize, directory: &Path) -> Result<(), PartnerError> {
        let text = self.journal(from)?;
        if text.is_empty() {
            return Ok(());
        }
        journals::keep_copy(directory, &text).map_err(PartnerError::Journal)
    }

    /// Goes on with the journal of a host, which may be this one with the copy of another's.
    pub(super) fn go_on_with_journal(&self, from: usize, directory: &Path) -> Result<(), PartnerError> {
        let text = self.journal(from)?;
        journals::go_on_with(directory, &text)
            .map(drop)
            .map_err(PartnerError::Journal)
    }

    /// Copies a part into the own directory.
    pub(super) fn copy(&self, from: usize, part: &Part) -> Result<(), PartnerError> {
        let stock = wait_for(self.ask(from)).map_err(self.call_failed(from))?;
        self.copy_below(
            from,
            part,
            stock.root.as_deref().map(OsStr::from_bytes).map(PathBuf::from),
        )
    }

    /// The same, if it is known below which folder files in place are.
    pub(super) fn copy_below(
        &self,
        from: usize,
        part: &Part,
        root: Option<PathBuf>,
    ) -> Result<(), PartnerError> {
        let address = &self.addresses[from];
        let text = self
            .handle
            .call_blocking::<ReadManifest>(address, *part, PIECE_TIMEOUT);
        let text = text.map_err(self.call_failed(from))?;
        let name = &self.names[from];
        let manifest = Manifest::parse(&text).map_err(|source| PartnerError::Manifest {
            host: name.clone(),
            source,
        })?;
        let found = (manifest.generation, manifest.rank, manifest.step, manifest.ranks);
        let changed = || PartnerError::Changed {
            host: name.clone(),
            rank: part.rank,
            generation: part.generation,
        };
        if found != (part.generation, part.rank, part.step, part.ranks) {
            return Err(changed());
        }
        let is_inside = manifest.place == Place::Inside;
        // The depot is there for others while the copy takes its time.
        let arrival = lock(self.depot).expect(&manifest, root)?;
        let arrival = arrival.receive::<PartnerError>(|file, write| {
            let (path, size) = (&file.path, file.size);
            let ask = |offset: u64| {
                let length = (size - offset).min(Piece::LENGTH_MAX.into()) as u32;
                let piece = Piece {
                    part: *part,
                    is_inside,
                    path: path.clone(),
                    offset,
                    length,
                };
                (length > 0).then(|| self.handle.call::<ReadPiece>(address, piece, PIECE_TIMEOUT))
            };
            let mut offset = 0;
            let mut asked = ask(offset);
            while let Some(call) = asked {
                let bytes = wait_for(call).map_err(self.call_failed(from))?;
                let expected = (size - offset).min(Piece::LENGTH_MAX.into());
                if bytes.len() as u64 != expected {
                    return Err(changed());
                }
                offset += expected;
                // The next one comes while this one is written.
                asked = ask(offset);
                write(&bytes).map_err(|source| StoreError::Files {
                    action: "write the copy of",
                    path: PathBuf::from(OsStr::from_bytes(path)),
                    source,
                })?;
            }
            Ok(())
        })?;
        Ok(lock(self.depot).admit(arrival)?)
    }
}

/// An error with what caused it, in one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// A short answer from memory.
pub(super) const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// To read a few megabytes on a busy disk.
const PIECE_TIMEOUT: Duration = Duration::from_secs(60);
