//! A result that is given in one place and taken in another.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{self, Context, Poll},
};

use ropewalk_fabric::{Address, OperationId, PeerId, Waker};

use self::handover::{Given, Giver, Taker, Used, handover};
use crate::{CallTiming, bulk::BulkId, lock::lock};

mod handover;
#[cfg(test)]
mod interleavings;
mod memory;
mod shared;
#[cfg(test)]
mod tests;

/// The receiving end of one result.
pub(crate) struct Pending<T>(Taker<T, Details>);

/// The giving end of one result.
pub(crate) struct Promise<T>(Giver<T, Details>);

/// The work of an engine that brings a result.
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
pub(crate) struct Places<T>(VecDeque<Used<T, Details>>);

/// The details of a result: who brings it, by which call and work, how long that took, and whom to wake.
struct Details {
    abandoned: Abandoned,
    /// Who is to bring the result, if that is known.
    peer: Option<(PeerId, Address)>,
    /// The name of the procedure whose call brings it; empty if no call does.
    procedure: &'static str,
    /// Where the time of the call went, once it is known.
    timing: Option<Box<CallTiming>>,
    /// The work of the engine that brings it, if that has begun.
    work: Option<Work>,
    waker: Option<task::Waker>,
}

/// Both ends of a result that `work` will bring, if that has begun.
pub(crate) fn promise<T>(work: Option<Work>, abandoned: &Abandoned) -> (Promise<T>, Pending<T>) {
    new_ends(work, abandoned, "", None)
}

fn new_ends<T>(
    work: Option<Work>,
    abandoned: &Abandoned,
    procedure: &'static str,
    peer: Option<(PeerId, Address)>,
) -> (Promise<T>, Pending<T>) {
    let (giver, taker) = handover(Details {
        abandoned: abandoned.clone(),
        peer,
        procedure,
        timing: None,
        work,
        waker: None,
    });
    (Promise(giver), Pending(taker))
}

impl<T> Places<T> {
    /// How many are kept.
    const KEPT_MAX: usize = 1024;

    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// As [`promise`], for the result of a procedure that a peer is to bring.
    #[inline]
    pub(crate) fn promise<'a>(
        &mut self,
        work: Option<Work>,
        abandoned: &Abandoned,
        procedure: &'static str,
        peer: PeerId,
        address: impl Fn() -> Option<&'a Address>,
    ) -> (Promise<T>, Pending<T>) {
        let named = || address().map(|address| (peer, address.clone()));
        // The oldest is the likeliest to be taken.
        let Some(oldest) = self.0.pop_front() else {
            return new_ends(work, abandoned, procedure, named());
        };
        let ends = oldest.reuse(|details| {
            details.work = work;
            details.waker = None;
            details.procedure = procedure;
            details.timing = None;
            if details.peer.as_ref().is_none_or(|&(known, _)| known != peer) {
                details.peer = named();
            }
        });
        match ends {
            Ok((giver, taker)) => (Promise(giver), Pending(taker)),
            Err(oldest) => {
                self.0.push_front(oldest);
                new_ends(work, abandoned, procedure, named())
            }
        }
    }

    /// Gives the result, and keeps the place.
    #[inline]
    pub(crate) fn fulfil(&mut self, promise: Promise<T>, result: impl FnOnce() -> T) {
        let used = promise.give(result);
        if self.0.len() < Self::KEPT_MAX {
            self.0.push_back(used);
        }
    }
}

impl<T> Pending<T> {
    /// Who was to bring the result.
    pub(crate) fn peer(&self) -> Option<Address> {
        let details = lock(self.0.details());
        details.peer.as_ref().map(|(_, address)| address.clone())
    }

    /// The name of the procedure that was called.
    pub(crate) fn procedure(&self) -> &'static str {
        lock(self.0.details()).procedure
    }

    /// The timing that [`keep_timing`](Self::keep_timing) kept.
    pub(crate) fn timing(&self) -> Option<CallTiming> {
        lock(self.0.details()).timing.as_deref().copied()
    }

    pub(crate) fn keep_timing(&self, timing: CallTiming) {
        lock(self.0.details()).timing = Some(Box::new(timing));
    }

    /// The value that `using` makes of the result, once, if the result is there.
    #[inline]
    pub(crate) fn take<R>(&mut self, using: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.take(using)
    }

    /// As [`take`](Self::take); who finds nothing is woken.
    pub(crate) fn poll<R>(&mut self, context: &mut Context<'_>, using: impl Fn(&mut T) -> R) -> Poll<R> {
        if let Some(result) = self.0.take(&using) {
            return Poll::Ready(result);
        }
        lock(self.0.details()).waker = Some(context.waker().clone());
        self.0.watch();
        // If it was given meanwhile, perhaps another was woken, whom it had before.
        self.0.take(&using).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if self.0.close() {
            let details = lock(self.0.details());
            if let Some(work) = details.work {
                details.abandoned.push(work);
            }
        }
    }
}

impl<T> Promise<T> {
    pub(crate) fn fulfil(self, result: T) {
        self.give(|| result);
    }

    #[inline]
    fn give(self, result: impl FnOnce() -> T) -> Used<T, Details> {
        let (given, used) = self.0.give(result);
        if given == Given::Watched {
            let waker = lock(used.details()).waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        used
    }

    /// Returns true if nobody wants the result any longer.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }

    /// Another operation brings the result now. Returns whether somebody wants it still.
    pub(crate) fn follow(&self, operation: OperationId) -> bool {
        lock(self.0.details()).work = Some(Work::Operation(operation));
        // Who closes it from here on finds that.
        !self.0.is_closed()
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
