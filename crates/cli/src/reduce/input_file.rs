//! A file that is read range by range.

use std::{
    cell::RefCell,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytemuck::cast_slice_mut;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    arrays::{Kind, Stamp},
    interim::Source,
    operator::Load,
    word::Word,
};
use crate::npy::ArrayFile;

/// An array file, as elements to compute with. It is opened when it is read first.
pub(super) struct InputFile {
    path: PathBuf,
    kind: Arc<Kind>,
    /// The size of an element to compute with.
    size: usize,
    load: Option<Load>,
    opened: Mutex<Option<Opened>>,
    desk: Arc<Desk>,
}

/// A file that was opened once.
#[derive(Clone)]
struct Opened {
    stamp: Stamp,
    /// Closed again if too many are open.
    file: Option<Arc<ArrayFile>>,
}

/// What all files of a worker share.
#[derive(Debug)]
pub(super) struct Desk {
    /// How many more files may stay open.
    free: Mutex<u64>,
    /// The number of the last read, and the file if it goes on.
    reading: Mutex<(u64, Option<PathBuf>)>,
}

impl InputFile {
    pub(super) fn new(
        path: PathBuf,
        kind: Arc<Kind>,
        size: usize,
        load: Option<Load>,
        desk: Arc<Desk>,
    ) -> Self {
        Self {
            path,
            kind,
            size,
            load,
            opened: Mutex::default(),
            desk,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file, if it was not.
    ///
    /// # Errors
    /// If it cannot be opened, or is another array than it should be.
    pub(super) fn open(&self) -> Result<Arc<ArrayFile>, InputError> {
        let mut opened = lock(&self.opened);
        if let Some(Opened { file: Some(file), .. }) = &*opened {
            return Ok(Arc::clone(file));
        }
        let file = ArrayFile::open(&self.path);
        let file = file.map_err(|error| {
            error
                .not_there()
                .map_or_else(InputError::other, InputError::Missing)
        })?;
        let kind = Kind::of(file.header());
        if kind != *self.kind {
            return Err(InputError::Fault(kind.difference(&self.kind, "the others")));
        }
        let file = Arc::new(file);
        let stamp = Stamp::of(&file.metadata().map_err(InputError::Missing)?);
        if opened.as_ref().is_some_and(|before| before.stamp != stamp) {
            return Err(InputError::Fault(Stamp::CHANGED.to_owned()));
        }
        let stays = self.desk.keeps_one_more();
        *opened = Some(Opened {
            stamp,
            file: stays.then(|| Arc::clone(&file)),
        });
        Ok(file)
    }

    /// Says that the file is as it was when it was opened, if it was.
    ///
    /// # Errors
    /// If it has changed.
    pub(super) fn is_unchanged(&self) -> io::Result<()> {
        match &*lock(&self.opened) {
            Some(opened) => opened.stamp.check(&self.path),
            None => Ok(()),
        }
    }

    fn fill(&self, offset: u64, into: &mut [u8]) -> Result<(), InputError> {
        let file = self.open()?;
        let Some(load) = self.load else {
            return file.read_elements(offset, into).map_err(InputError::other);
        };
        let size = self.kind.element.size();
        let length = into.len() / self.size * size;
        RAW.with_borrow_mut(|raw| {
            // Elements of any type are aligned there.
            raw.resize(raw.len().max(length.div_ceil(size_of::<u128>())), 0);
            let raw = &mut cast_slice_mut(raw)[..length];
            file.read_elements(offset / self.size as u64 * size as u64, raw)
                .map_err(InputError::other)?;
            load(raw, into);
            Ok(())
        })
    }
}

impl Source for InputFile {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.desk.begin(&self.path);
        let filled = self.fill(offset, into);
        self.desk.end();
        filled.map_err(|error| {
            let text = format!("{}: {error}", self.path.display());
            // The command hears it as the fault of a file, and all workers as the end of the reduction.
            Word::Fault(text.clone()).say();
            io::Error::other(text)
        })
    }
}

impl Desk {
    /// Lets this process open as many files as it may, and keeps some for others than arrays.
    pub(super) fn new() -> Self {
        const KEPT: u64 = 100;
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        let current = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        Self {
            free: Mutex::new(current.map_or(u64::MAX, |current| current.saturating_sub(KEPT))),
            reading: Mutex::default(),
        }
    }

    /// The number of the read that goes on, and its file.
    pub(super) fn reading(&self) -> Option<(u64, PathBuf)> {
        let (number, path) = &*lock(&self.reading);
        path.clone().map(|path| (*number, path))
    }

    fn keeps_one_more(&self) -> bool {
        let mut free = lock(&self.free);
        let keeps = *free > 0;
        *free = free.saturating_sub(1);
        keeps
    }

    fn begin(&self, path: &Path) {
        let mut reading = lock(&self.reading);
        *reading = (reading.0 + 1, Some(path.to_owned()));
    }

    fn end(&self) {
        lock(&self.reading).1 = None;
    }
}

/// Why elements cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// The file is to blame.
    #[error("{0}")]
    Fault(String),
    /// This process cannot open it.
    #[error("it cannot be read: {0}")]
    Missing(io::Error),
}

impl InputError {
    fn other(error: impl fmt::Display) -> Self {
        Self::Fault(error.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked left is whole all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Elements as they are in files.
    static RAW: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
}
