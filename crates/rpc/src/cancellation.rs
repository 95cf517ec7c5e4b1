//! How the target of a call learns that nobody waits for the answer any longer.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use crate::lock::lock;

/// Says if a call that is being handled was cancelled: by its caller, by the caller's death, or by its
/// deadline. It is a future too, which is ready then. It stays pending for ever if the call is answered
/// first.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    cancelled: bool,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
    wakers: Vec<Waker>,
}

impl Cancellation {
    /// The tasks that may wait for one cancellation; the first is woken, and looks in vain, for one more.
    const WAKERS_MAX: usize = 16;

    /// Returns true if the call was cancelled.
    pub fn is_cancelled(&self) -> bool {
        lock(&self.0).cancelled
    }

    /// Runs `callback` when the call is cancelled: where the engine is driven, so it should be short. It runs at
    /// once if that was before, and never if the call is answered first.
    pub fn on_cancel(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.0);
        if state.cancelled {
            drop(state);
            callback();
        } else {
            state.callbacks.push(Box::new(callback));
        }
    }

    pub(crate) fn cancel(&self) {
        let (callbacks, wakers) = {
            let mut state = lock(&self.0);
            state.cancelled = true;
            (
                std::mem::take(&mut state.callbacks),
                std::mem::take(&mut state.wakers),
            )
        };
        callbacks.into_iter().for_each(|callback| callback());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Future for Cancellation {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.cancelled {
            return Poll::Ready(());
        }
        let waker = context.waker();
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            if state.wakers.len() == Self::WAKERS_MAX {
                state.wakers.remove(0).wake();
            }
            state.wakers.push(waker.clone());
        }
        Poll::Pending
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancellation")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everybody who asked is told, once, and those who ask later at once.
    #[test]
    fn everybody_is_told_once() {
        let cancellation = Cancellation::default();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let ran = Arc::clone(&count);
        cancellation.on_cancel(move || ran.wake());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut waiting = cancellation.clone();
        for _ in 0..2 {
            assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
        }
        assert!(!cancellation.is_cancelled());
        for _ in 0..2 {
            cancellation.cancel();
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(Pin::new(&mut waiting).poll(&mut context).is_ready());
        let ran = Arc::clone(&count);
        cancellation.on_cancel(move || ran.wake());
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
    }
}
