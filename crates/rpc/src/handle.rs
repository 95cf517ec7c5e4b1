//! Submitting to an engine that another thread or task drives.

use std::{
    borrow::Borrow,
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Context, Poll},
    time::{Duration, Instant},
};

use ropewalk_fabric::{Address, SubmitError, Waker};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::{
    Call, CallError, CallOptions, CallTiming, Engine, Procedure,
    blocking::block_on_until,
    hedged::Usual,
    lock::lock,
    oneshot::{Receiver, Sender, oneshot},
    timers::{Sleep, Timers},
};

/// By which any thread or task submits to an [`Engine`] that another one drives.
///
/// Submissions run inside the engine's [`progress`](Engine::progress), in the order in which they were made.
/// If nobody drives the engine they wait; if the engine is dropped they end with `Stopped`.
///
/// # Example
/// ```
/// # use std::time::Duration;
/// # use ropewalk_names::{Incarnation, JobId, Rank};
/// # use ropewalk_rpc::{Endpoint, EndpointOptions, Engine, Identity, JobKey, Procedure, Role, thread};
/// # struct Add;
/// # impl Procedure for Add {
/// #     const NAME: &'static str = "example.add";
/// #     type Input = (u32, u32);
/// #     type Output = u32;
/// # }
/// # let identity = Identity { role: Role::Rank, rank: Rank(0), incarnation: Incarnation(0) };
/// # let options = EndpointOptions::new(JobId([7; 16]), JobKey::generate()?, identity);
/// let mut engine = Engine::new(Endpoint::bind(options)?);
/// engine.serve::<Add>(|_caller, (a, b)| Ok(a + b));
/// let (driver, handle) = thread::Driver::spawn(engine)?;
///
/// let target = handle.address().clone();
/// let sum = handle.call_blocking::<Add>(&target, (2, 3), Duration::from_secs(5))?;
/// assert_eq!(sum, 5);
/// # drop(driver);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    submissions: Arc<Submissions>,
}

/// The reason why a submission gave no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// More was submitted than the engine has taken so far.
    #[error(
        "{} submissions wait for the engine already: submit less at once, or drive it more often",
        Handle::SUBMISSIONS_MAX
    )]
    Busy,
    /// The engine was dropped before it ran what was submitted, or panicked while it ran it.
    #[error("the engine is gone")]
    Stopped,
    /// Nobody drove the engine in time. What was submitted may still run.
    #[error("the engine was not driven in time")]
    TimedOut,
}

impl Handle {
    /// How much may wait for the engine; above it what is submitted ends as busy.
    pub const SUBMISSIONS_MAX: usize = 1 << 16;

    pub(crate) fn new(submissions: Arc<Submissions>) -> Self {
        Self { submissions }
    }

    /// Where peers reach the engine.
    pub fn address(&self) -> &Address {
        &self.submissions.address
    }

    /// Calls a procedure of the engine at `target`, which may be this one. The time until the engine takes
    /// the call counts as part of its time-out. Errors that [`Engine::call`] gives at once the future gives.
    pub fn call<P>(
        &self,
        target: &Address,
        input: P::Input,
        options: impl Into<CallOptions>,
    ) -> HandleCall<P::Output>
    where
        P: Procedure<Input: Send + 'static, Output: Send + 'static> + 'static,
    {
        self.call_borrowed::<P, P::Input>(target, input, options.into())
    }

    /// As [`call`](Self::call), with an input that several calls may share.
    pub(crate) fn call_borrowed<P, I>(
        &self,
        target: &Address,
        input: I,
        options: CallOptions,
    ) -> HandleCall<P::Output>
    where
        P: Procedure<Output: Send + 'static> + 'static,
        I: Borrow<P::Input> + Send + 'static,
    {
        let slot = Arc::new(Mutex::new(CallSlot {
            stage: Stage::Queued,
            waker: None,
        }));
        let queued = QueuedCall::<P::Output> {
            slot: slot.clone(),
            procedure: P::NAME,
        };
        let target = target.clone();
        let to = target.clone();
        let timeout = options.timeout;
        let deadline = Instant::now().checked_add(timeout);
        let submitted = self.submissions.push(Box::new(move |engine| {
            let left = deadline.map_or(timeout, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            queued.start(|| {
                if left.is_zero() {
                    return Err(CallError::TimedOut {
                        procedure: P::NAME,
                        peer: to,
                    });
                }
                let options = CallOptions {
                    timeout: left,
                    ..options
                };
                engine.call::<P>(&to, input.borrow(), options)
            });
        }));
        if let Err(error) = submitted {
            lock(&slot).stage = Stage::Ended(Err(match error {
                HandleError::Busy => CallError::Submit {
                    procedure: P::NAME,
                    source: SubmitError::Busy {
                        peer: target,
                        limit: "Handle::SUBMISSIONS_MAX",
                    },
                },
                _ => CallError::Stopped { procedure: P::NAME },
            }));
        }
        HandleCall {
            slot,
            procedure: P::NAME,
        }
    }

    /// Calls a procedure and blocks this thread until the call has ended; see [`call`](Self::call). In a
    /// handler of the same engine that is never before its deadline: call in an asynchronous one there.
    ///
    /// # Errors
    /// As for [`Engine::call`] and the future that it gives.
    pub fn call_blocking<P>(
        &self,
        target: &Address,
        input: P::Input,
        options: impl Into<CallOptions>,
    ) -> Result<P::Output, CallError>
    where
        P: Procedure<Input: Send + 'static, Output: Send + 'static> + 'static,
    {
        let options = options.into();
        let deadline = Instant::now().checked_add(options.timeout);
        let call = self.call::<P>(target, input, options);
        block_on_until(call, deadline).unwrap_or_else(|| {
            Err(CallError::TimedOut {
                procedure: P::NAME,
                peer: target.clone(),
            })
        })
    }

    /// Runs `run` inside the engine's next [`progress`](Engine::progress), once for sure if the engine is
    /// driven, even if the future is dropped: to notify, expose, serve and everything else that an engine does.
    /// It must not drive the engine.
    pub fn with<T: Send + 'static>(&self, run: impl FnOnce(&mut Engine) -> T + Send + 'static) -> With<T> {
        let (sender, receiver) = oneshot();
        let refused = self.submissions.push(Box::new(move |engine| {
            // Whoever dropped the future wanted it run all the same.
            Sender::send(sender, run(engine));
        }));
        With {
            receiver,
            refused: refused.err(),
        }
    }

    /// As [`with`](Self::with), blocking this thread until it ran.
    ///
    /// # Errors
    /// If it did not run, or not within `timeout`.
    pub fn with_blocking<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Engine) -> T + Send + 'static,
        timeout: Duration,
    ) -> Result<T, HandleError> {
        let deadline = Instant::now().checked_add(timeout);
        block_on_until(self.with(run), deadline).unwrap_or(Err(HandleError::TimedOut))
    }

    pub(crate) fn usual(&self) -> &Usual {
        &self.submissions.usual
    }

    /// A future that is ready when `time` has come, as seen by the engine while it is driven; at once if the
    /// engine is gone.
    pub fn sleep_until(&self, time: Instant) -> Sleep {
        self.submissions.timers.sleep_until(time)
    }

    /// A future that is ready when `duration` has passed; see [`sleep_until`](Self::sleep_until).
    pub fn sleep(&self, duration: Duration) -> Sleep {
        // A century: nobody waits for longer, and a clock can still show it.
        let never = Duration::from_secs(3_155_760_000);
        self.sleep_until(Instant::now() + duration.min(never))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("address", self.address())
            .finish_non_exhaustive()
    }
}

pub(crate) type Submission = Box<dyn FnOnce(&mut Engine) + Send>;

/// The submissions that handles left for the engine.
pub(crate) struct Submissions {
    queue: Mutex<Queue>,
    /// True if the queue may hold something: an engine that is never submitted to takes no lock.
    any: AtomicBool,
    waker: Waker,
    address: Address,
    pub(crate) timers: Timers,
    usual: Usual,
}

#[derive(Default)]
struct Queue {
    submissions: VecDeque<Submission>,
    stopped: bool,
}

impl Submissions {
    pub(crate) fn new(address: Address, waker: Waker) -> Self {
        Self {
            queue: Mutex::default(),
            any: AtomicBool::new(false),
            timers: Timers::new(waker.clone()),
            usual: Usual::default(),
            waker,
            address,
        }
    }

    fn push(&self, submission: Submission) -> Result<(), HandleError> {
        let mut queue = lock(&self.queue);
        if queue.stopped {
            return Err(HandleError::Stopped);
        }
        if queue.submissions.len() >= Handle::SUBMISSIONS_MAX {
            return Err(HandleError::Busy);
        }
        queue.submissions.push_back(submission);
        let first = queue.submissions.len() == 1;
        self.any.store(true, Ordering::SeqCst);
        drop(queue);
        // For what came before it somebody else woke the engine, which has not taken it yet.
        if first {
            self.waker.wake();
        }
        Ok(())
    }

    /// Moves what was submitted to the end of `taken`.
    pub(crate) fn take(&self, taken: &mut VecDeque<Submission>) {
        if self.any.load(Ordering::SeqCst) {
            let mut queue = lock(&self.queue);
            self.any.store(false, Ordering::SeqCst);
            taken.append(&mut queue.submissions);
        }
    }

    /// The engine is gone.
    pub(crate) fn stop(&self) {
        let left = {
            let mut queue = lock(&self.queue);
            queue.stopped = true;
            std::mem::take(&mut queue.submissions)
        };
        // Outside the lock: dropping one wakes whoever waits for it.
        drop(left);
        self.timers.stop();
    }
}

/// A call in progress by way of a [`Handle`]: a future of its output. Dropping it cancels the call.
#[must_use = "dropping a call cancels it"]
pub struct HandleCall<O> {
    slot: Arc<Mutex<CallSlot<O>>>,
    procedure: &'static str,
}

struct CallSlot<O> {
    stage: Stage<O>,
    waker: Option<task::Waker>,
}

enum Stage<O> {
    Queued,
    Called(Call<O>),
    Ended(Result<O, CallError>),
    /// Its result was taken, or nobody wants it.
    Closed,
}

impl<O: DeserializeOwned> HandleCall<O> {
    /// Where the time of the call went since the engine took it; `None` before its output was taken, or if
    /// [`CallOptions::timing`] was not set.
    pub fn timing(&self) -> Option<CallTiming> {
        match &lock(&self.slot).stage {
            Stage::Called(call) => call.timing(),
            _ => None,
        }
    }
}

impl<O: DeserializeOwned> Future for HandleCall<O> {
    type Output = Result<O, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.slot);
        match &mut slot.stage {
            Stage::Queued => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Stage::Called(call) => Pin::new(call).poll(context),
            Stage::Ended(_) => match std::mem::replace(&mut slot.stage, Stage::Closed) {
                Stage::Ended(result) => Poll::Ready(result),
                _ => unreachable!("the stage was just looked at"),
            },
            Stage::Closed => Poll::Pending,
        }
    }
}

impl<O> Drop for HandleCall<O> {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut lock(&self.slot).stage, Stage::Closed);
        // Outside the lock: it cancels the call.
        drop(stage);
    }
}

impl<O> fmt::Debug for HandleCall<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleCall")
            .field("procedure", &self.procedure)
            .finish_non_exhaustive()
    }
}

/// The engine's end of a call that it has not taken yet. Dropped before, the call ends as stopped.
struct QueuedCall<O> {
    slot: Arc<Mutex<CallSlot<O>>>,
    procedure: &'static str,
}

impl<O: DeserializeOwned> QueuedCall<O> {
    fn start(self, call: impl FnOnce() -> Result<Call<O>, CallError>) {
        let mut slot = lock(&self.slot);
        if !matches!(slot.stage, Stage::Queued) {
            return;
        }
        let Some(waker) = slot.waker.take() else {
            slot.stage = call().map_or_else(|error| Stage::Ended(Err(error)), Stage::Called);
            return;
        };
        // The call itself will wake whoever waits for it: there is no need to do so here.
        let mut call = match call() {
            Ok(call) => call,
            Err(error) => {
                slot.stage = Stage::Ended(Err(error));
                drop(slot);
                return waker.wake();
            }
        };
        match Pin::new(&mut call).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => slot.stage = Stage::Called(call),
            Poll::Ready(result) => {
                slot.stage = Stage::Ended(result);
                drop(slot);
                waker.wake();
            }
        }
    }
}

impl<O> Drop for QueuedCall<O> {
    fn drop(&mut self) {
        let mut slot = lock(&self.slot);
        if matches!(slot.stage, Stage::Queued) {
            let procedure = self.procedure;
            slot.stage = Stage::Ended(Err(CallError::Stopped { procedure }));
            let waker = slot.waker.take();
            drop(slot);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// A future of what was run by [`Handle::with`].
#[derive(Debug)]
pub struct With<T> {
    receiver: Receiver<T>,
    refused: Option<HandleError>,
}

impl<T> Future for With<T> {
    type Output = Result<T, HandleError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(error) = self.refused {
            return Poll::Ready(Err(error));
        }
        let received = Pin::new(&mut self.receiver).poll(context);
        received.map(|given| given.ok_or(HandleError::Stopped))
    }
}
