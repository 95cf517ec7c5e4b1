//! Saves that are written in the background.

use std::{
    fmt, io,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    thread::{self, JoinHandle},
};

use ropewalk_checkpoint_core::Level;

use super::{
    save::Save,
    store::Store,
    store_error::{StoreError, cannot},
};

/// A [`Store`] in a thread of its own, which writes, hashes and commits one save while the program goes on.
///
/// The program copies its state and gives away the copy. The next save waits for the last one, so that there are never
/// more than one copy. A process that dies in the middle of a save leaves the generation before. Old generations are
/// removed after each commit. Dropping the value waits for the save under way.
///
/// An advisor learns the time of the foreground only: it hears of the copy by [`RunAdvisor::save_copied`], and of the
/// end of the save by [`RunAdvisor::save_ended`].
///
/// [`RunAdvisor::save_copied`]: super::RunAdvisor::save_copied
/// [`RunAdvisor::save_ended`]: super::RunAdvisor::save_ended
///
/// # Examples
/// ```
/// use std::fs;
///
/// use ropewalk_checkpoint::{
///     AdvisorOptions, Alone, BackgroundStore, Level, RunAdvisor, Store, StoreOptions,
/// };
///
/// let folder = tempfile::tempdir()?;
/// let mut store = Store::open(StoreOptions::new(folder.path()))?;
/// let mut state = vec![0_u8; 1000];
/// if let Some(saved) = store.restore(&mut Alone)?.folder {
///     state = fs::read(saved.join("state"))?;
/// }
/// let mut saves = BackgroundStore::new(store);
/// let mut advisor = RunAdvisor::start(&AdvisorOptions::default(), Some(folder.path().join("journal")))?;
/// for step in 1..=100 {
///     // Compute one step, then:
///     state[step as usize] += 1;
///     if let Some(ended) = saves.look()? {
///         advisor.save_ended(&ended);
///     }
///     let advice = advisor.step_end();
///     if advice.decision.save || step == 100 {
///         if let Some(ended) = saves.wait()? {
///             advisor.save_ended(&ended);
///         }
///         advisor.save_begin(advice.level);
///         let copy = state.clone();
///         saves.save(step, advice.level, move |save| fs::write(save.folder().join("state"), copy))?;
///         advisor.save_copied(advice.level);
///     }
/// }
/// if let Some(ended) = saves.wait()? {
///     advisor.save_ended(&ended);
///     ended.saved?;
/// }
/// advisor.finish();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BackgroundStore {
    /// Until the drop.
    orders: Option<Sender<Order>>,
    ends: Receiver<Option<Ended>>,
    thread: Option<JoinHandle<()>>,
    /// The thread has something to do, or has told an end that nobody has taken.
    is_busy: bool,
}

/// The end of a save that was written in the background.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The level of the save.
    pub level: Level,
    /// The generation that exists now, or the error. Those made before are as they were.
    pub saved: Result<u64, StoreError>,
    /// The error if old generations could not be removed.
    pub retired: Result<(), StoreError>,
}

struct Order {
    step: u64,
    level: Level,
    write: Box<Write>,
}

type Write = dyn FnOnce(&mut Save) -> io::Result<()> + Send;

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, level, .. } = self;
        write!(f, "Order {{ step: {step}, level: {level:?} }}")
    }
}

impl BackgroundStore {
    /// Moves a store, from which the program has restored, to a thread of its own.
    pub fn new(store: Store) -> Self {
        Self::start(store, Vec::new(), || ())
    }

    /// The same with something that the thread does first.
    ///
    /// Old generations are removed also from `more`, which nobody saves to.
    pub(super) fn start(store: Store, more: Vec<Store>, first: impl FnOnce() + Send + 'static) -> Self {
        let (orders, ordered) = channel();
        let (tell, ends) = channel();
        let thread = thread::spawn(move || {
            first();
            serve(store, more, &ordered, &tell);
        });
        Self {
            orders: Some(orders),
            ends,
            thread: Some(thread),
            is_busy: true,
        }
    }

    /// Saves in the background what `write` writes to the [folder](Save::folder) of a save. It runs in the thread, and
    /// owns what it writes. Waits for the save before, and returns its end if nobody has taken it.
    ///
    /// # Errors
    /// [`StoreError::WriterGone`] if an earlier `write` has panicked.
    pub fn save(
        &mut self,
        step: u64,
        level: Level,
        write: impl FnOnce(&mut Save) -> io::Result<()> + Send + 'static,
    ) -> Result<Option<Ended>, StoreError> {
        let before = self.wait()?;
        let order = Order {
            step,
            level,
            write: Box::new(write),
        };
        let orders = self.orders.as_ref().ok_or(StoreError::WriterGone)?;
        orders.send(order).map_err(|_| StoreError::WriterGone)?;
        self.is_busy = true;
        Ok(before)
    }

    /// The end of the save under way, if it has ended since the last look.
    ///
    /// # Errors
    /// [`StoreError::WriterGone`] if an earlier `write` has panicked.
    pub fn look(&mut self) -> Result<Option<Ended>, StoreError> {
        match self.ends.try_recv() {
            Ok(ended) => {
                self.is_busy = false;
                Ok(ended)
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(StoreError::WriterGone),
        }
    }

    /// Waits until no save is under way, and returns the end of the last one if nobody has taken it.
    ///
    /// # Errors
    /// [`StoreError::WriterGone`] if an earlier `write` has panicked.
    pub fn wait(&mut self) -> Result<Option<Ended>, StoreError> {
        if !self.is_busy {
            return Ok(None);
        }
        let ended = self.ends.recv().map_err(|_| StoreError::WriterGone)?;
        self.is_busy = false;
        Ok(ended)
    }
}

/// Waits for the last save.
impl Drop for BackgroundStore {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic has printed its own message.
            let _ = thread.join();
        }
    }
}

fn serve(mut store: Store, mut more: Vec<Store>, ordered: &Receiver<Order>, tell: &Sender<Option<Ended>>) {
    if tell.send(None).is_err() {
        return;
    }
    while let Ok(order) = ordered.recv() {
        let level = order.level;
        let saved = commit(&mut store, order);
        let retired = match &saved {
            Ok(_) => retire(&mut store, &mut more),
            Err(_) => Ok(()),
        };
        let ended = Ended {
            level,
            saved,
            retired,
        };
        if tell.send(Some(ended)).is_err() {
            return;
        }
    }
}

fn commit(store: &mut Store, order: Order) -> Result<u64, StoreError> {
    let Order { step, level, write } = order;
    let mut save = store.begin(step)?;
    save.set_level(level);
    let written = write(&mut save);
    match cannot("write to", save.folder(), written) {
        Ok(()) => store.commit(save),
        Err(error) => {
            store.abandon(save);
            Err(error)
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
