//! Waking futures at a time, by the engine that is driven anyway.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Context, Poll},
    time::Instant,
};

use ropewalk_fabric::Waker;

use crate::lock::lock;

/// Whom to wake when.
#[derive(Clone)]
pub(crate) struct Timers {
    shared: Arc<Shared>,
    waker: Waker,
}

struct Shared {
    table: Mutex<Table>,
    /// True if the table may hold something: an engine whose timers nobody uses takes no lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Table {
    sleeping: BTreeMap<(Instant, u64), task::Waker>,
    next: u64,
    stopped: bool,
}

impl Timers {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            shared: Arc::new(Shared {
                table: Mutex::default(),
                any: AtomicBool::new(false),
            }),
            waker,
        }
    }

    pub(crate) fn sleep_until(&self, time: Instant) -> Sleep {
        Sleep {
            timers: self.clone(),
            time,
            number: None,
        }
    }

    /// Wakes those whose time has come. Returns how many.
    pub(crate) fn handle_time(&self, now: impl FnOnce() -> Instant) -> usize {
        if !self.shared.any.load(Ordering::SeqCst) {
            return 0;
        }
        let due = {
            let mut table = lock(&self.shared.table);
            let later = table.sleeping.split_off(&(now(), u64::MAX));
            let due = std::mem::replace(&mut table.sleeping, later);
            self.shared
                .any
                .store(!table.sleeping.is_empty(), Ordering::SeqCst);
            due
        };
        let count = due.len();
        // Outside the lock: a waker runs foreign code.
        due.into_values().for_each(task::Waker::wake);
        count
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if !self.shared.any.load(Ordering::SeqCst) {
            return None;
        }
        let table = lock(&self.shared.table);
        table.sleeping.keys().next().map(|&(time, _)| time)
    }

    /// Nobody looks at the time any longer: all sleepers wake.
    pub(crate) fn stop(&self) {
        let sleeping = {
            let mut table = lock(&self.shared.table);
            table.stopped = true;
            std::mem::take(&mut table.sleeping)
        };
        sleeping.into_values().for_each(task::Waker::wake);
    }
}

/// A future that is ready at a time; see [`Handle::sleep_until`](crate::Handle::sleep_until).
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    timers: Timers,
    time: Instant,
    /// Its number in the table, while it may be there.
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.time {
            return Poll::Ready(());
        }
        let mut table = lock(&self.timers.shared.table);
        if table.stopped {
            return Poll::Ready(());
        }
        let number = self.number.unwrap_or(table.next);
        table.next += u64::from(self.number.is_none());
        table
            .sleeping
            .insert((self.time, number), context.waker().clone());
        self.timers.shared.any.store(true, Ordering::SeqCst);
        let first = table.sleeping.keys().next() == Some(&(self.time, number));
        drop(table);
        if first && self.number.is_none() {
            // The engine sleeps for longer than this.
            self.timers.waker.wake();
        }
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.timers.shared.table)
                .sleeping
                .remove(&(self.time, number));
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}
