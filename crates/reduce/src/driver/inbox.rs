//! The bounded queue by which the program's threads reach the progress thread.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

/// Things that wait for the thread that takes them, in their order.
///
/// A thread that puts something into a full inbox waits for room. The thread that takes never waits here: the code of
/// users that it runs, such as an operation, may put something in too, and what it would wait for is itself.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    state: Mutex<State<T>>,
    has_room: Condvar,
    waiting_max: usize,
}

#[derive(Debug)]
struct State<T> {
    /// The things that wait; `None` once nothing is taken any more.
    waiting: Option<VecDeque<T>>,
    /// The thread that took last, until it [rests](Inbox::rest).
    taker: Option<ThreadId>,
}

impl<T> Inbox<T> {
    /// An inbox in which at most `waiting_max` things wait, and those that the taker itself puts in.
    pub(super) fn new(waiting_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: Some(VecDeque::new()),
                taker: None,
            }),
            has_room: Condvar::new(),
            waiting_max,
        }
    }

    /// Leaves something for the taker, as soon as there is room. Drops it if nothing is taken any more.
    pub(super) fn put(&self, thing: T) {
        let is_full = |state: &mut State<T>| {
            let waiting = state.waiting.as_ref().map_or(0, VecDeque::len);
            waiting >= self.waiting_max && state.taker != Some(thread::current().id())
        };
        let state = self.has_room.wait_while(self.lock(), is_full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let late = match &mut state.waiting {
            Some(waiting) => {
                waiting.push_back(thing);
                None
            }
            None => Some(thing),
        };
        drop(state);
        // Dropped without the lock, since it may tell somebody who waits.
        drop(late);
    }

    /// Takes all that waits; `None` once the inbox is closed. One thread at a time does that.
    pub(super) fn take(&self) -> Option<VecDeque<T>> {
        let mut state = self.lock();
        state.taker = Some(thread::current().id());
        let taken = state.waiting.as_mut().map(std::mem::take);
        drop(state);
        // Who waits has found it full, and nothing was taken since then. To wake nobody is a system call too.
        if taken
            .as_ref()
            .is_some_and(|taken| taken.len() >= self.waiting_max)
        {
            self.has_room.notify_all();
        }
        taken
    }

    /// Says if nothing is taken any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().waiting.is_none()
    }

    /// Another thread may take now.
    pub(super) fn rest(&self) {
        self.lock().taker = None;
    }

    /// Drops what waits, and from now on whatever is put in.
    pub(super) fn close(&self) {
        let abandoned = self.lock().waiting.take();
        self.has_room.notify_all();
        drop(abandoned);
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Two things fill the inbox; the third waits until they are taken, and then gets in.
    #[test]
    fn a_full_inbox_holds_its_senders_back() {
        let inbox = Inbox::new(2);
        let (sender, put) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..3 {
                    inbox.put(number);
                    sender.send(number).expect("the test receives");
                }
            });
            assert_eq!([put.recv(), put.recv()], [Ok(0), Ok(1)]);
            assert_eq!(inbox.take(), Some(VecDeque::from([0, 1])));
            assert_eq!(put.recv(), Ok(2));
        });
        assert_eq!(inbox.take(), Some(VecDeque::from([2])));
    }

    /// The taker puts more into its own inbox than others may, and goes on.
    #[test]
    fn the_taker_does_not_wait_for_itself() {
        let inbox = Inbox::new(1);
        assert_eq!(inbox.take(), Some(VecDeque::new()));
        inbox.put(0);
        inbox.put(1);
        assert_eq!(inbox.take(), Some(VecDeque::from([0, 1])));
    }

    /// The end of an inbox lets go of those that wait for room, and drops what they bring.
    #[test]
    fn a_closed_inbox_keeps_nobody() {
        let inbox = Inbox::new(1);
        let thing = std::sync::Arc::new(());
        thread::scope(|scope| {
            let putting = scope.spawn(|| {
                inbox.put(thing.clone());
                inbox.put(thing.clone());
            });
            while inbox.lock().waiting.as_ref().is_some_and(VecDeque::is_empty) {
                thread::yield_now();
            }
            inbox.close();
            putting.join().expect("it ends");
        });
        assert_eq!(inbox.take(), None);
        assert_eq!(std::sync::Arc::strong_count(&thing), 1);
    }
}
