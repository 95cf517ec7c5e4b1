//! Saves that are written in the background.

use std::{
    hint::black_box,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    thread::{self, JoinHandle},
};

use ropewalk_checkpoint_core::Level;

use super::{error::RunError, state_file::STATE_FILE};
use crate::{
    files::{Files, RealFiles},
    store::Store,
    store_error::{StoreError, cannot},
};

/// A thread that owns the store of a rank and commits one save at a time.
///
/// The buffer of a save travels to the thread and back, so that a save in the next one's time waits for it, and its
/// pages are touched only once.
#[derive(Debug)]
pub(super) struct Writer {
    orders: Option<Sender<Order>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// Here while the thread has nothing to do.
    buffer: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Order {
    step: u64,
    level: Level,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Done {
    buffer: Vec<u8>,
    /// Nothing when the thread only made the buffer.
    written: Option<Written>,
}

/// The end of a save.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) level: Level,
    pub(super) saved: Result<u64, StoreError>,
    /// Old generations that could not be removed.
    pub(super) retired: Result<(), StoreError>,
}

impl Writer {
    /// Starts the thread, which makes a buffer of so many bytes while the program computes.
    ///
    /// Old generations are removed also from `more`, which nobody saves to.
    pub(super) fn start(store: Store, more: Vec<Store>, bytes: usize) -> Self {
        let (orders, ordered) = channel();
        let (tell, done) = channel();
        let thread = thread::spawn(move || serve(store, more, bytes, &ordered, &tell));
        Self {
            orders: Some(orders),
            done,
            thread: Some(thread),
            buffer: None,
        }
    }

    /// The end of the save under way, if it has ended since the last look.
    pub(super) fn look(&mut self) -> Result<Option<Written>, RunError> {
        match self.done.try_recv() {
            Ok(done) => Ok(self.take_in(done)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(RunError::WriterGone),
        }
    }

    /// Waits until no save is under way, and returns the end of the last one if nobody has heard of it.
    pub(super) fn wait(&mut self) -> Result<Option<Written>, RunError> {
        if self.buffer.is_some() {
            return Ok(None);
        }
        let mut done = self.done.recv().map_err(|_| RunError::WriterGone)?;
        // A save may follow while the buffer is made: never, as a save needs the buffer.
        let written = done.written.take();
        self.buffer = Some(done.buffer);
        Ok(written)
    }

    /// The buffer for the next save, after [`wait`](Self::wait).
    pub(super) fn buffer(&mut self) -> Result<Vec<u8>, RunError> {
        self.buffer.take().ok_or(RunError::WriterGone)
    }

    /// Gives a buffer back that is not written.
    pub(super) fn put_back(&mut self, buffer: Vec<u8>) {
        self.buffer = Some(buffer);
    }

    /// Writes a buffer in the background.
    pub(super) fn write(&mut self, step: u64, level: Level, buffer: Vec<u8>) -> Result<(), RunError> {
        let order = Order { step, level, buffer };
        let orders = self.orders.as_ref().ok_or(RunError::WriterGone)?;
        orders.send(order).map_err(|_| RunError::WriterGone)
    }

    fn take_in(&mut self, done: Done) -> Option<Written> {
        self.buffer = Some(done.buffer);
        done.written
    }
}

/// Waits for the last save.
impl Drop for Writer {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic was told as `WriterGone`.
            let _ = thread.join();
        }
    }
}

fn serve(
    mut store: Store,
    mut more: Vec<Store>,
    bytes: usize,
    ordered: &Receiver<Order>,
    tell: &Sender<Done>,
) {
    let made = Done {
        buffer: touched(bytes),
        written: None,
    };
    if tell.send(made).is_err() {
        return;
    }
    while let Ok(Order { step, level, buffer }) = ordered.recv() {
        let saved = commit(&mut store, step, level, &buffer);
        let retired = match &saved {
            Ok(_) => retire(&mut store, &mut more),
            Err(_) => Ok(()),
        };
        let written = Some(Written {
            level,
            saved,
            retired,
        });
        if tell.send(Done { buffer, written }).is_err() {
            return;
        }
    }
}

fn retire(store: &mut Store, more: &mut Vec<Store>) -> Result<(), StoreError> {
    if more.is_empty() {
        return store.retire().map(drop);
    }
    let complete = store.complete_here()?;
    for store in more.iter_mut().chain([store]) {
        store.retire_beyond(&complete)?;
    }
    more.retain(|other| other.newest().is_some());
    Ok(())
}

fn commit(store: &mut Store, step: u64, level: Level, buffer: &[u8]) -> Result<u64, StoreError> {
    let mut save = store.begin(step)?;
    save.set_level(level);
    let path = save.folder().join(STATE_FILE);
    match cannot("write", &path, RealFiles.write(&path, buffer)) {
        Ok(()) => store.commit(save),
        Err(error) => {
            store.abandon(save);
            Err(error)
        }
    }
}

/// A buffer whose pages exist: the first touch of a page takes longer than the copy into it.
fn touched(bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    for page in buffer.chunks_mut(PAGE) {
        page[0] = black_box(0);
    }
    buffer
}

const PAGE: usize = 4096;
