//! Waiting for an answer on a thread that has nothing else to do.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

struct Unpark(Thread);

/// Ends a [`park`](thread::park) of this thread.
pub(super) fn waker() -> Waker {
    Arc::new(Unpark(thread::current())).into()
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for the output of a future that has a deadline of its own.
pub(super) fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
