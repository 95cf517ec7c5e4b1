//! Saves of named state, written in the background from one buffer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropewalk_checkpoint_core::{Level, StateHeaderError};

use super::{buffer::Buffer, error::RunError, state_file::STATE_FILE};
use crate::{
    background::{BackgroundStore, Ended},
    files::{Files, RealFiles},
    store::Store,
};

/// A [`BackgroundStore`] and the buffer from which it writes.
///
/// The thread touches the pages of the buffer while the program computes. It locks the buffer while a save is under
/// way; the program locks it after it has waited for that.
#[derive(Debug)]
pub(super) struct Writer {
    saves: BackgroundStore,
    buffer: Arc<Mutex<Buffer>>,
}

impl Writer {
    /// Starts the thread, which makes a buffer of so many bytes first.
    ///
    /// Old generations are removed also from `more`, which nobody saves to.
    pub(super) fn start(store: Store, more: Vec<Store>, bytes: usize) -> Self {
        let buffer = Arc::default();
        let made = Arc::clone(&buffer);
        let saves = BackgroundStore::start(store, more, move || *locked(&made) = Buffer::touched(bytes));
        Self { saves, buffer }
    }

    /// The end of the save under way, if it has ended since the last look.
    pub(super) fn look(&mut self) -> Result<Option<Ended>, RunError> {
        Ok(self.saves.look()?)
    }

    /// Waits until no save is under way, and returns the end of the last one if nobody has heard of it.
    pub(super) fn wait(&mut self) -> Result<Option<Ended>, RunError> {
        Ok(self.saves.wait()?)
    }

    /// Lets `copy` fill the buffer, and writes it in the background. To be called after [`wait`](Self::wait).
    pub(super) fn save(
        &mut self,
        step: u64,
        level: Level,
        copy: impl FnOnce(&mut Buffer) -> Result<(), StateHeaderError>,
    ) -> Result<(), RunError> {
        copy(&mut locked(&self.buffer))?;
        let buffer = Arc::clone(&self.buffer);
        self.saves.save(step, level, move |save| {
            RealFiles.write(&save.folder().join(STATE_FILE), locked(&buffer).bytes())
        })?;
        Ok(())
    }
}

/// The buffer, also after a panic: each save fills it anew.
fn locked(buffer: &Mutex<Buffer>) -> MutexGuard<'_, Buffer> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}
