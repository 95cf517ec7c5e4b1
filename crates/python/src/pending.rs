//! A call under way, as Python sees it.

use std::{
    future::Future,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use pyo3::{PyResult, Python, exceptions::PyRuntimeError, pyclass, pymethods};
use ropewalk_reduce::{Receipt, ReduceError, Waiter};
use rustix::event::{EventfdFlags, eventfd};

use crate::{errors, memory::Memory};

/// The end of a call.
pub(crate) struct Ended {
    pub(crate) memory: Option<Memory>,
    pub(crate) receipt: Receipt,
    pub(crate) exposure: Option<Duration>,
}

/// A call until its end.
pub(crate) struct Underway {
    /// Waits for the end, in threads.
    waiter: Waiter,
    /// The same for event loops.
    future: EndedFuture,
}

type EndedFuture = Pin<Box<dyn Future<Output = Result<Ended, ReduceError>> + Send>>;

impl Underway {
    pub(crate) fn new(
        waiter: Waiter,
        future: impl Future<Output = Result<Ended, ReduceError>> + Send + 'static,
    ) -> Self {
        Self {
            waiter,
            future: Box::pin(future),
        }
    }
}

/// A call under way. `ropewalk.Reduction` is around it.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Pending {
    state: Mutex<State>,
    waiter: Waiter,
    signal: Arc<Signal>,
}

enum State {
    Ended(Box<Result<Ended, ReduceError>>),
    Running(EndedFuture),
    Taken,
}

/// The wake-up of those who wait for the end.
#[derive(Default)]
struct Signal {
    has_ended: Mutex<bool>,
    /// For an event loop, if one waits.
    descriptor: OnceLock<OwnedFd>,
}

/// `(value, (contributions, root, lost, excluded, plans), exposure in seconds)`.
type EndedTuple = (Option<Memory>, ReceiptTuple, Option<f64>);

/// Contributions, root, lost, excluded, plans, unprotected, and the scheduler's messages and their bytes: received,
/// then sent.
type ReceiptTuple = (u32, u32, Vec<u32>, Vec<u32>, u32, Vec<u32>, (u64, u64, u64, u64));

impl Pending {
    pub(crate) fn new(call: Underway) -> Self {
        Self {
            state: Mutex::new(State::Running(call.future)),
            waiter: call.waiter,
            signal: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says if the call has ended.
    fn poll(&self) -> bool {
        let mut state = self.lock();
        if let State::Running(future) = &mut *state {
            let waker = Waker::from(Arc::clone(&self.signal));
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(ended) => {
                    *state = State::Ended(Box::new(ended));
                    // An event loop may wait too.
                    Arc::clone(&self.signal).wake();
                }
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Waits so long at most, and says if the call has ended.
    fn wait_for(&self, patience: Duration) -> bool {
        let has_ended = || !matches!(*self.lock(), State::Running(_));
        // Another thread may take the end meanwhile. To poll what has not ended starts a thread that looks for the end.
        match has_ended() || !self.waiter.wait_for(patience) {
            true => has_ended(),
            false => self.poll(),
        }
    }
}

#[pymethods]
impl Pending {
    /// Says if the call has ended.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.poll())
    }

    /// Says if this rank's contribution is protected.
    fn is_protected(&self) -> bool {
        self.waiter.is_protected()
    }

    /// Ends the call for all ranks, unless its end is decided already.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.waiter.cancel());
    }

    /// Waits for the end, so many seconds at most; says if it has come. Signals are handled meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        // Longer ones, and what is no number, mean no limit.
        let timeout = timeout.and_then(|timeout| Duration::try_from_secs_f64(timeout.max(0.0)).ok());
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let patience = left.map_or(BETWEEN_SIGNALS, |left| left.min(BETWEEN_SIGNALS));
            if py.detach(|| self.wait_for(patience)) {
                return Ok(true);
            }
            py.check_signals()?;
            if left.is_some_and(|left| left <= BETWEEN_SIGNALS) {
                return Ok(false);
            }
        }
    }

    /// A descriptor that is readable from the end on.
    fn descriptor(&self, py: Python<'_>) -> PyResult<i32> {
        if self.signal.descriptor.get().is_none() {
            let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let made = made.map_err(|error| pyo3::exceptions::PyOSError::new_err(error.to_string()))?;
            // If another thread was faster, that one's is used.
            let _ = self.signal.descriptor.set(made);
        }
        // The end may have come before there was a descriptor.
        if self.done(py) || *self.signal.lock() {
            self.signal.tell_descriptor();
        }
        let descriptor = self.signal.descriptor.get();
        Ok(descriptor.map_or(-1, AsRawFd::as_raw_fd))
    }

    /// The outcome, once: `(value, receipt, exposure)`.
    fn take(&self, py: Python<'_>) -> PyResult<EndedTuple> {
        // Who looks at the call meanwhile may need the interpreter.
        let state = py.detach(|| {
            let mut state = self.lock();
            let has_ended = !matches!(&*state, State::Running(_));
            has_ended.then(|| std::mem::replace(&mut *state, State::Taken))
        });
        let state = state.ok_or_else(|| PyRuntimeError::new_err("the call has not ended"))?;
        let State::Ended(ended) = state else {
            return Err(PyRuntimeError::new_err("the outcome was taken before"));
        };
        let Ended {
            memory,
            receipt,
            exposure,
        } = (*ended).map_err(|error| errors::of_call(py, &error))?;
        let load = receipt.scheduler;
        let numbers = |ranks: Vec<ropewalk_reduce::Rank>| ranks.into_iter().map(|rank| rank.0).collect();
        let receipt = (
            receipt.contributions,
            receipt.root.0,
            numbers(receipt.lost),
            numbers(receipt.excluded),
            receipt.plans,
            numbers(receipt.unprotected),
            (load.received, load.received_bytes, load.sent, load.sent_bytes),
        );
        Ok((memory, receipt, exposure.map(|time| time.as_secs_f64())))
    }
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.has_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_descriptor(&self) {
        if let Some(descriptor) = self.descriptor.get() {
            // A descriptor that is full is readable too.
            let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.lock() = true;
        self.tell_descriptor();
    }
}

/// While a thread waits, Python's handlers of signals run this often at least.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(100);
