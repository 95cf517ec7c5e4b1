//! The work of other threads and tasks: what they submit to the engine, and handlers that are futures.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use ropewalk_fabric::{Address, Waker};

use crate::{
    Handle,
    handle::{Submission, Submissions},
    tasks::{TaskFuture, TaskSet},
};

/// Submissions and asynchronous handlers of an engine.
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

    /// A handle by which other threads and tasks submit.
    pub(super) fn handle(&self) -> Handle {
        Handle::new(self.submissions.clone())
    }

    /// Polls the future of an asynchronous handler from now on.
    pub(super) fn spawn(&mut self, future: TaskFuture) {
        self.tasks.spawn(future);
    }

    /// Wakes the futures whose time has come. Returns how many.
    pub(super) fn wake(&mut self) -> usize {
        self.submissions.timers.handle_time(Instant::now)
    }

    /// Polls the futures that were woken. Returns how many.
    pub(super) fn poll(&mut self) -> usize {
        self.tasks.poll()
    }

    /// Takes what was submitted. Returns how much is to run.
    pub(super) fn take_submissions(&mut self) -> usize {
        self.submissions.take(&mut self.taken);
        self.taken.len()
    }

    /// The next submission to run, of those that were taken.
    pub(super) fn pop_submission(&mut self) -> Option<Submission> {
        self.taken.pop_front()
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
