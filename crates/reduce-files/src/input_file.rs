//! A file that is read range by range.

use std::{
    cell::RefCell,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytemuck::cast_slice_mut;
use ropewalk_reduce::Source;

use super::{
    arrays::{Kind, Stamp},
    mapping::Mapping,
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
struct Opened {
    stamp: Stamp,
    /// Gone again if there are too many.
    content: Option<Arc<Content>>,
}

/// The content of a file.
pub(super) struct Content {
    mapping: Mapping,
    /// Where the elements begin, in bytes.
    begin: u64,
    is_native: bool,
}

/// Things that all files of a worker share.
#[derive(Debug)]
pub(super) struct Desk {
    /// How many more files may stay in memory.
    free: Mutex<u32>,
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
    pub(super) fn open(&self) -> Result<Arc<Content>, InputError> {
        let mut opened = lock(&self.opened);
        if let Some(content) = opened.as_ref().and_then(|opened| opened.content.as_ref()) {
            return Ok(Arc::clone(content));
        }
        let file = ArrayFile::open(&self.path);
        let file = file.map_err(|error| {
            error
                .not_there()
                .map_or_else(InputError::fault, InputError::Missing)
        })?;
        let kind = Kind::of(file.header());
        if kind != *self.kind {
            return Err(InputError::Fault(kind.difference(&self.kind, "the others")));
        }
        let stamp = Stamp::of(&file.file().metadata().map_err(InputError::Missing)?);
        if opened.as_ref().is_some_and(|before| before.stamp != stamp) {
            return Err(InputError::fault(Stamp::CHANGED));
        }
        let length = file.begin() + file.header().data_size();
        let length = usize::try_from(length).map_err(InputError::fault)?;
        let content = Arc::new(Content {
            mapping: Mapping::new(file.file(), length).map_err(InputError::Missing)?,
            begin: file.begin(),
            is_native: file.header().is_native(),
        });
        let stays = self.desk.keeps_one_more();
        *opened = Some(Opened {
            stamp,
            content: stays.then(|| Arc::clone(&content)),
        });
        Ok(content)
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

    /// Makes `into` elements to compute with, from the one at `offset` bytes of those on.
    fn fill(&self, offset: u64, into: &mut [u8]) -> Result<(), InputError> {
        let content = self.open()?;
        let (element, size) = (self.kind.element, self.kind.element.size());
        let begin = offset / self.size as u64 * size as u64;
        let length = into.len() / self.size * size;
        content.lend(begin, length, |bytes| {
            let swap = |bytes: &mut [u8]| {
                if !content.is_native {
                    bytes
                        .chunks_exact_mut(element.swapped_size())
                        .for_each(<[u8]>::reverse);
                }
            };
            let Some(load) = self.load else {
                into.copy_from_slice(bytes);
                return swap(into);
            };
            RAW.with_borrow_mut(|raw| {
                // Elements of any type are aligned there.
                raw.resize(raw.len().max(length.div_ceil(size_of::<u128>())), 0);
                let raw = &mut cast_slice_mut(raw)[..length];
                raw.copy_from_slice(bytes);
                swap(raw);
                load(raw, into);
            });
        })
    }

    /// Reads, so that those who watch see it, and tells the command of a fault.
    fn reading<R>(&self, read: impl FnOnce() -> Result<R, InputError>) -> io::Result<R> {
        self.desk.begin(&self.path);
        let done = read();
        self.desk.end();
        done.map_err(|error| {
            let text = format!("{}: {error}", self.path.display());
            // All workers hear it as the end of the reduction, and the command that it was a file.
            Word::Fault(text.clone()).say();
            io::Error::other(text)
        })
    }
}

impl Source for InputFile {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reading(|| self.fill(offset, into))
    }

    fn lend(&self, offset: u64, length: usize, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        self.reading(|| {
            let content = self.open()?;
            let is_plain =
                self.load.is_none() && content.is_native && content.begin.is_multiple_of(ALIGNMENT);
            if is_plain {
                content.lend(offset, length, borrower)?;
            }
            Ok(is_plain)
        })
    }
}

impl Content {
    fn lend<R>(
        &self,
        offset: u64,
        length: usize,
        borrower: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, InputError> {
        // All of it is in this process's memory.
        let begin = (self.begin + offset) as usize;
        let lent = self.mapping.lend(begin..begin + length, borrower);
        lent.map_err(|_| InputError::fault("it was truncated while it was read, or its disk fails"))
    }
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            free: Mutex::new(KEPT_MAX),
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
    fn fault(error: impl fmt::Display) -> Self {
        Self::Fault(error.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a thread that panicked left is whole all the same.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many files stay in memory: half of what Linux lets a process map. The others are mapped anew for each range.
const KEPT_MAX: u32 = 30_000;
/// The strictest alignment of elements.
const ALIGNMENT: u64 = 8;

thread_local! {
    /// Elements as they are in files.
    static RAW: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
}
