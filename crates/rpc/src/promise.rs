//! A result that is given in one place and taken in another.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Context, Poll},
};

use ropewalk_fabric::{OperationId, Waker};

use crate::{bulk::BulkId, lock::lock};

/// The receiving end of one result.
pub(crate) struct Pending<T> {
    place: Arc<Mutex<Place<T>>>,
    abandoned: Abandoned,
    /// Whether nobody will take what is in the place any more.
    over: bool,
}

/// The giving end of one result.
pub(crate) struct Promise<T>(Arc<Mutex<Place<T>>>);

/// What of an engine's work brings a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Bulk(BulkId),
    Operation(OperationId),
}

/// The work whose results nobody wants any longer, for the engine to cancel: each at most once, so no more than
/// it may have in progress.
#[derive(Clone)]
pub(crate) struct Abandoned(Arc<AbandonedQueue>);

struct AbandonedQueue {
    any: AtomicBool,
    work: Mutex<Vec<Work>>,
    waker: Waker,
}

struct Place<T> {
    state: State<T>,
    /// What the engine does for it.
    work: Option<Work>,
    waker: Option<task::Waker>,
}

enum State<T> {
    Abandoned,
    Given(T),
    Taken,
    Waiting,
}

/// Both ends of a result that `work` will bring, if that has begun.
pub(crate) fn promise<T>(work: Option<Work>, abandoned: &Abandoned) -> (Promise<T>, Pending<T>) {
    let place = Arc::new(Mutex::new(Place {
        state: State::Waiting,
        work,
        waker: None,
    }));
    let pending = Pending {
        place: Arc::clone(&place),
        abandoned: abandoned.clone(),
        over: false,
    };
    (Promise(place), pending)
}

impl<T> Pending<T> {
    pub(crate) fn take(&mut self) -> Option<T> {
        let taken = lock(&self.place).take();
        self.over |= taken.is_some();
        taken
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        let mut place = lock(&self.place);
        match place.take() {
            Some(result) => {
                self.over = true;
                Poll::Ready(result)
            }
            None => {
                place.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut place = lock(&self.place);
        if matches!(place.state, State::Waiting) {
            place.state = State::Abandoned;
            if let Some(work) = place.work {
                self.abandoned.push(work);
            }
        }
    }
}

impl<T> Promise<T> {
    pub(crate) fn fulfil(self, result: T) {
        let waker = {
            let mut place = lock(&self.0);
            if matches!(place.state, State::Abandoned) {
                return;
            }
            place.state = State::Given(result);
            place.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether nobody wants the result any longer.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(lock(&self.0).state, State::Abandoned)
    }

    /// Another operation brings the result now. Returns whether somebody wants it still.
    pub(crate) fn follow(&self, operation: OperationId) -> bool {
        let mut place = lock(&self.0);
        place.work = Some(Work::Operation(operation));
        !matches!(place.state, State::Abandoned)
    }
}

impl Abandoned {
    pub(crate) fn new(waker: Waker) -> Self {
        Self(Arc::new(AbandonedQueue {
            any: AtomicBool::new(false),
            work: Mutex::default(),
            waker,
        }))
    }

    pub(crate) fn take(&self) -> Vec<Work> {
        // What is pushed after this look wakes the engine, which looks again.
        if !self.0.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut work = lock(&self.0.work);
        self.0.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *work)
    }

    fn push(&self, abandoned: Work) {
        let mut work = lock(&self.0.work);
        work.push(abandoned);
        self.0.any.store(true, Ordering::Release);
        drop(work);
        self.0.waker.wake();
    }
}

impl<T> Place<T> {
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Given(result) => Some(result),
            other => {
                self.state = other;
                None
            }
        }
    }
}
