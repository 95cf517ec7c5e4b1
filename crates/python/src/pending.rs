//! A call under way, as Python sees it.

use std::{
    future::Future,
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use bytemuck::Pod;
use pyo3::{PyResult, Python, exceptions::PyRuntimeError, pyclass, pymethods};
use ropewalk_reduce::{Barrier, BufferReduction, Receipt, ReduceError, Reduction};
use rustix::event::{EventfdFlags, eventfd};

use crate::{errors, memory::Memory};

/// The end of a call.
pub(crate) struct Ended {
    pub(crate) memory: Option<Memory>,
    pub(crate) receipt: Receipt,
    pub(crate) exposure: Option<Duration>,
}

/// A call until its end.
pub(crate) trait UntilEnded: Future<Output = Result<Ended, ReduceError>> + Send + Unpin {
    /// Waits so long at most, and says if the end has come.
    fn wait_for(&self, patience: Duration) -> bool;
}

/// Something of `ropewalk_reduce` that ends.
pub(crate) trait Awaited: Future + Send + Unpin {
    /// Waits so long at most, and says if the end has come.
    fn wait_for(&self, patience: Duration) -> bool;
}

impl<V> Awaited for Reduction<V> {
    fn wait_for(&self, patience: Duration) -> bool {
        self.wait_for(patience)
    }
}

impl<T: Pod + Send + Sync> Awaited for BufferReduction<T> {
    fn wait_for(&self, patience: Duration) -> bool {
        self.wait_for(patience)
    }
}

impl Awaited for Barrier {
    fn wait_for(&self, patience: Duration) -> bool {
        self.wait_for(patience)
    }
}

/// A call, and how its outcome becomes its end.
pub(crate) struct Underway<C, F> {
    call: C,
    /// `None` once the call has ended.
    end: Option<F>,
}

impl<C: Awaited, F: FnOnce(C::Output) -> Result<Ended, ReduceError> + Send + Unpin> Underway<C, F> {
    pub(crate) fn new(call: C, end: F) -> Self {
        Self { call, end: Some(end) }
    }
}

impl<C: Awaited, F: FnOnce(C::Output) -> Result<Ended, ReduceError> + Send + Unpin> Future
    for Underway<C, F>
{
    type Output = Result<Ended, ReduceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(Pin::new(&mut self.call).poll(context));
        let end = self
            .end
            .take()
            .expect("a future is not polled again once it is ready");
        Poll::Ready(end(outcome))
    }
}

impl<C: Awaited, F: FnOnce(C::Output) -> Result<Ended, ReduceError> + Send + Unpin> UntilEnded
    for Underway<C, F>
{
    fn wait_for(&self, patience: Duration) -> bool {
        self.call.wait_for(patience)
    }
}

/// A call under way. `ropewalk.Reduction` is around it.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Pending {
    state: Mutex<State>,
    signal: Arc<Signal>,
}

enum State {
    Ended(Result<Ended, ReduceError>),
    Running(Box<dyn UntilEnded>),
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
type EndedTuple = (Option<Memory>, (u32, u32, Vec<u32>, Vec<u32>, u32), Option<f64>);

impl Pending {
    pub(crate) fn new(call: Box<dyn UntilEnded>) -> Self {
        Self {
            state: Mutex::new(State::Running(call)),
            signal: Arc::default(),
        }
    }

    /// Says if the call has ended.
    fn poll(&self) -> bool {
        match self.state.try_lock() {
            Ok(mut state) => self.look(&mut state),
            // Another thread waits for the end.
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Poisoned(state)) => self.look(&mut state.into_inner()),
        }
    }

    /// Waits so long at most, and says if the call has ended.
    fn wait_for(&self, patience: Duration) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = match &*state {
            State::Running(call) => call.wait_for(patience),
            State::Ended(_) | State::Taken => true,
        };
        has_ended && self.look(&mut state)
    }

    fn look(&self, state: &mut State) -> bool {
        if let State::Running(call) = state {
            let waker = Waker::from(Arc::clone(&self.signal));
            match Pin::new(call).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(ended) => {
                    *state = State::Ended(ended);
                    // An event loop may wait too.
                    Arc::clone(&self.signal).wake();
                }
                Poll::Pending => return false,
            }
        }
        true
    }
}

#[pymethods]
impl Pending {
    /// Says if the call has ended.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.poll())
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

    /// The outcome, once: `(value, (contributions, root, lost, excluded, plans), exposure)`.
    fn take(&self, py: Python<'_>) -> PyResult<EndedTuple> {
        let state = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let State::Running(_) = &*state {
                return Err(PyRuntimeError::new_err("the call has not ended"));
            }
            std::mem::replace(&mut *state, State::Taken)
        };
        let State::Ended(ended) = state else {
            return Err(PyRuntimeError::new_err("the outcome was taken before"));
        };
        let Ended {
            memory,
            receipt,
            exposure,
        } = ended.map_err(|error| errors::of_call(py, &error))?;
        let numbers = |ranks: Vec<ropewalk_reduce::Rank>| ranks.into_iter().map(|rank| rank.0).collect();
        let receipt = (
            receipt.contributions,
            receipt.root.0,
            numbers(receipt.lost),
            numbers(receipt.excluded),
            receipt.plans,
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
