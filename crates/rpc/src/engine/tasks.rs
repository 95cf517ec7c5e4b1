//! What an engine does for other threads and tasks: it runs what they submit, and handlers that are futures.

use std::{
    collections::VecDeque,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Instant,
};

use ropewalk_fabric::{Address, Waker};
use tracing::Instrument;

use crate::{
    CallContext, Engine, Fault, Handle, Procedure,
    handle::{Submission, Submissions},
    tasks::TaskSet,
};

/// What others have left for the engine.
pub(super) struct Guests {
    submissions: Arc<Submissions>,
    /// Those that run next.
    taken: VecDeque<Submission>,
    tasks: TaskSet,
}

impl Guests {
    pub(super) fn new(address: Address, waker: Waker) -> Self {
        Self {
            submissions: Arc::new(Submissions::new(address, waker.clone())),
            taken: VecDeque::new(),
            tasks: TaskSet::new(waker),
        }
    }

    /// When a future is to be woken, or now if one is to be polled.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.tasks.any_ready() || !self.taken.is_empty() {
            return Some(Instant::now());
        }
        self.submissions.timers.next_deadline()
    }

    /// How many asynchronous handlers have not ended.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The engine is gone: whoever waits for it is told.
    pub(super) fn stop(&self) {
        self.submissions.stop();
    }
}

impl Engine {
    /// The most asynchronous handlers that are in progress at once; above it calls are answered with a
    /// [`Fault`].
    pub const TASKS_MAX: usize = 1 << 16;

    /// A handle by which other threads and tasks submit to this engine.
    pub fn handle(&self) -> Handle {
        Handle::new(self.guests.submissions.clone())
    }

    /// Serves a procedure by a future, which is polled inside [`progress`](Self::progress), so that it must
    /// not block: the context makes nested calls. It is dropped, and with it the nested calls, when the
    /// caller stops waiting.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ropewalk_rpc::{Address, Engine, Fault, Procedure};
    /// # struct Double;
    /// # impl Procedure for Double {
    /// #     const NAME: &'static str = "example.double";
    /// #     type Input = u64;
    /// #     type Output = u64;
    /// # }
    /// struct DoubleThere;
    ///
    /// impl Procedure for DoubleThere {
    ///     const NAME: &'static str = "example.double_there";
    ///     type Input = (Address, u64);
    ///     type Output = u64;
    /// }
    ///
    /// fn serve(engine: &mut Engine) {
    ///     engine.serve_async::<DoubleThere, _>(|context, (there, number)| async move {
    ///         let doubled = context.call::<Double>(&there, number, Duration::MAX).await;
    ///         doubled.map_err(Fault::new)
    ///     });
    /// }
    /// ```
    ///
    /// # Panics
    /// As for [`serve`](Self::serve).
    pub fn serve_async<P, F>(&mut self, mut handler: impl FnMut(CallContext, P::Input) -> F + Send + 'static)
    where
        P: Procedure<Output: 'static>,
        F: Future<Output = Result<P::Output, Fault>> + Send + 'static,
    {
        let handle = self.handle();
        self.serve_later::<P>(move |engine, caller, input, responder| {
            if engine.guests.tasks.len() >= Self::TASKS_MAX {
                return responder.answer(Err(Fault::new("too many calls are in progress here")));
            }
            let span = tracing::Span::current();
            let cancellation = responder.cancellation().clone();
            let handled = handler(CallContext::new(caller, handle.clone()), input);
            let answer = async move {
                let mut handled = pin!(handled);
                let mut cancelled = pin!(cancellation);
                let result = poll_fn(|context| {
                    if let Poll::Ready(result) = handled.as_mut().poll(context) {
                        return Poll::Ready(Some(result));
                    }
                    cancelled.as_mut().poll(context).map(|()| None)
                });
                if let Some(result) = result.await {
                    responder.answer(result);
                }
            };
            engine.guests.tasks.spawn(Box::pin(answer.instrument(span)));
        });
    }

    /// Wakes and polls the futures whose time has come, and runs what was submitted. Returns how much there
    /// was of that.
    ///
    /// # Panics
    /// With the panic of one of them; the engine is whole then.
    pub(super) fn progress_guests(&mut self) -> usize {
        let mut happened = self.guests.submissions.timers.handle_time(Instant::now);
        let guarded = catch_unwind(AssertUnwindSafe(|| {
            happened += self.guests.tasks.poll();
            let guests = &mut self.guests;
            guests.submissions.take(&mut guests.taken);
            // What these submit in turn has to wait, so that this ends.
            for _ in 0..self.guests.taken.len() {
                let submission = self.guests.taken.pop_front();
                submission.expect("only here they are taken")(self);
                happened += 1;
            }
        }));
        if let Err(panic) = guarded {
            self.driving = false;
            resume_unwind(panic);
        }
        happened
    }
}
