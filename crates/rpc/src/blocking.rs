//! Blocking a thread on a future that another thread completes.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// How long it is worth looking before the thread is put to sleep: about what it costs to wake it.
const SPIN: Duration = Duration::from_micros(20);

struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// The output of the future, or `None` if there is none by the deadline.
pub(crate) fn block_on_until<F: Future>(future: F, deadline: Option<Instant>) -> Option<F::Output> {
    let mut future = pin!(future);
    let parked = Arc::new(Parked {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = parked.clone().into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let spin_until = Instant::now() + SPIN;
        while !parked.woken.swap(false, Ordering::SeqCst) {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return None;
            }
            if now < spin_until {
                std::hint::spin_loop();
            } else {
                match deadline {
                    Some(deadline) => thread::park_timeout(deadline - now),
                    None => thread::park(),
                }
            }
        }
    }
}
