//! A result that is given in one place and taken in another.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Context, Poll},
};

use ropewalk_fabric::{Address, OperationId, PeerId, Waker};

use crate::{bulk::BulkId, lock::lock};

/// The receiving end of one result.
pub(crate) struct Pending<T> {
    place: Arc<Mutex<Place<T>>>,
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

/// The places of results that were taken, to be used again: one costs more than the rest of a call.
pub(crate) struct Places<T>(VecDeque<Arc<Mutex<Place<T>>>>);

pub(crate) struct Place<T> {
    state: State<T>,
    abandoned: Abandoned,
    /// Who is to bring the result, if that is known.
    peer: Option<(PeerId, Address)>,
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
    Place::new(work, abandoned).ends()
}

impl<T> Places<T> {
    /// How many are kept.
    const KEPT_MAX: usize = 1024;

    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// As [`promise`], for a result that a peer is to bring.
    pub(crate) fn promise<'a>(
        &mut self,
        work: Option<Work>,
        abandoned: &Abandoned,
        peer: PeerId,
        address: impl Fn() -> Option<&'a Address>,
    ) -> (Promise<T>, Pending<T>) {
        // The oldest is the likeliest to be taken.
        if let Some(oldest) = self.0.front_mut()
            && let Some(place) = Arc::get_mut(oldest)
        {
            let place = place.get_mut().unwrap_or_else(PoisonError::into_inner);
            place.state = State::Waiting;
            place.work = work;
            place.waker = None;
            if place.peer.as_ref().is_none_or(|&(known, _)| known != peer) {
                place.peer = address().map(|address| (peer, address.clone()));
            }
            if let Some(place) = self.0.pop_front() {
                return ends(place);
            }
        }
        let mut place = Place::new(work, abandoned);
        place.peer = address().map(|address| (peer, address.clone()));
        place.ends()
    }

    /// Gives the result, and keeps the place.
    pub(crate) fn fulfil(&mut self, promise: Promise<T>, result: T) {
        promise.give(result);
        if self.0.len() < Self::KEPT_MAX {
            self.0.push_back(promise.0);
        }
    }
}

impl<T> Place<T> {
    fn new(work: Option<Work>, abandoned: &Abandoned) -> Self {
        Self {
            state: State::Waiting,
            abandoned: abandoned.clone(),
            peer: None,
            work,
            waker: None,
        }
    }

    fn ends(self) -> (Promise<T>, Pending<T>) {
        ends(Arc::new(Mutex::new(self)))
    }
}

fn ends<T>(place: Arc<Mutex<Place<T>>>) -> (Promise<T>, Pending<T>) {
    let pending = Pending {
        place: Arc::clone(&place),
        over: false,
    };
    (Promise(place), pending)
}

impl<T> Pending<T> {
    /// Who was to bring the result.
    pub(crate) fn peer(&self) -> Option<Address> {
        let place = lock(&self.place);
        place.peer.as_ref().map(|(_, address)| address.clone())
    }

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
                place.abandoned.push(work);
            }
        }
    }
}

impl<T> Promise<T> {
    pub(crate) fn fulfil(self, result: T) {
        self.give(result);
    }

    fn give(&self, result: T) {
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
