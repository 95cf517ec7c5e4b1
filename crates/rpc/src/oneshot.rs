//! One value from one thread to another.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{self, Context, Poll},
};

use crate::lock::lock;

/// The two ends through which one value goes.
pub(crate) fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Mutex::new(Slot {
        value: None,
        closed: false,
        waker: None,
    }));
    (Sender(slot.clone()), Receiver(slot))
}

/// Gives the value. Dropped without, the receiver gets `None`.
pub(crate) struct Sender<T>(Arc<Mutex<Slot<T>>>);

/// A future of the value; of `None` if there will be none.
pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    value: Option<T>,
    closed: bool,
    waker: Option<task::Waker>,
}

impl<T> Sender<T> {
    pub(crate) fn send(self, value: T) {
        lock(&self.0).value = Some(value);
        // Dropping this end tells the receiver.
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = lock(&self.0);
        if slot.closed {
            return Poll::Ready(slot.value.take());
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
