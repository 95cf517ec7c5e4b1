//! A place in which one thread leaves a value and another finds it, without a lock.

#![allow(
    unsafe_code,
    reason = "who may touch the value is said by the state beside it"
)]

use std::sync::{Mutex, PoisonError};

// What the tests replace, to try every order.
use super::{
    memory::{AtomicU8, Ordering, UnsafeCell},
    shared::End,
};

/// A place with what else is known of it, behind a lock.
struct Place<T, D> {
    state: AtomicU8,
    /// Until the state is [`FULL`] only the giver touches it, from then on only the taker; if the taker has closed the
    /// place before, only the giver.
    value: UnsafeCell<Option<T>>,
    details: Mutex<D>,
}

// SAFETY: the value goes from one thread to another, which the state orders; nobody sees it at the same time as
// another.
unsafe impl<T: Send, D: Send> Sync for Place<T, D> {}

/// The end that leaves the value. There is one.
pub(super) struct Giver<T, D>(End<Place<T, D>>);

/// The end that finds it. There is one.
pub(super) struct Taker<T, D>(End<Place<T, D>>);

/// Both ends of a place.
pub(super) type Ends<T, D> = (Giver<T, D>, Taker<T, D>);

/// A place whose value was left, for another one.
pub(super) struct Used<T, D>(End<Place<T, D>>);

/// The state of the taker, as the giver finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// The taker had closed the place, and the value is gone.
    Closed,
    /// The taker will find it.
    Unwatched,
    /// The taker asked to be told.
    Watched,
}

const EMPTY: u8 = 0;
/// The taker wants to be told.
const WATCHED: u8 = 1;
const FULL: u8 = 2;
const TAKEN: u8 = 3;
/// The taker wants nothing.
const CLOSED: u8 = 4;

/// Both ends of a new place.
pub(super) fn handover<T, D>(details: D) -> Ends<T, D> {
    let (giver, taker) = End::pair(Place {
        state: AtomicU8::new(EMPTY),
        value: UnsafeCell::new(None),
        details: Mutex::new(details),
    });
    (Giver(giver), Taker(taker))
}

impl<T, D> Giver<T, D> {
    pub(super) fn details(&self) -> &Mutex<D> {
        &self.0.details
    }

    /// Returns true if the taker wants nothing any longer.
    pub(super) fn is_closed(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == CLOSED
    }

    /// Leaves the value, which is made where it is left: to move it there would have to wait for what was just written.
    #[inline]
    pub(super) fn give(self, value: impl FnOnce() -> T) -> (Given, Used<T, D>) {
        let Self(place) = self;
        // SAFETY: there is one giver, which ends here, and the taker leaves the value alone before the state is `FULL`.
        place.value.with_mut(|place| unsafe { *place = Some(value()) });
        // A closed place never becomes full, not for a moment: its taker could see that.
        let full = |state| (state != CLOSED).then_some(FULL);
        let given = match place
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, full)
        {
            Err(_) => {
                // SAFETY: the taker leaves the value alone, since the place is not full and will not be.
                drop(place.value.with_mut(|value| unsafe { (*value).take() }));
                Given::Closed
            }
            Ok(WATCHED) => Given::Watched,
            Ok(_) => Given::Unwatched,
        };
        (given, Used(place))
    }
}

impl<T, D> Taker<T, D> {
    pub(super) fn details(&self) -> &Mutex<D> {
        &self.0.details
    }

    /// The output of `using` for the value, once, if the value is there.
    #[inline]
    pub(super) fn take<R>(&mut self, using: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.0.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // Before it is used: who panics over it has had it.
        self.0.state.store(TAKEN, Ordering::Relaxed);
        self.0.value.with_mut(|place| {
            // SAFETY: the giver has left it and is gone, and there is one taker.
            let place = unsafe { &mut *place };
            let used = place.as_mut().map(using);
            *place = None;
            used
        })
    }

    /// Asks to be told of the value, if it is not there yet. How to be told stands in the details before.
    pub(super) fn watch(&mut self) {
        // If it is there, or was taken, there is nothing to be told of.
        let _ = self
            .0
            .state
            .compare_exchange(EMPTY, WATCHED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Wants nothing any longer. Returns whether there was nothing yet.
    pub(super) fn close(&mut self) -> bool {
        if self.0.state.load(Ordering::Relaxed) == TAKEN {
            return false;
        }
        match self.0.state.swap(CLOSED, Ordering::AcqRel) {
            EMPTY | WATCHED => true,
            FULL => {
                // SAFETY: as in `take`; the giver, which alone looks at `CLOSED`, is gone.
                drop(self.0.value.with_mut(|value| unsafe { (*value).take() }));
                false
            }
            _ => false,
        }
    }
}

impl<T, D> Used<T, D> {
    pub(super) fn details(&self) -> &Mutex<D> {
        &self.0.details
    }

    /// Both ends of the place, if its taker is gone, for the next value; the details are those of before.
    #[inline]
    pub(super) fn reuse(self, change: impl FnOnce(&mut D)) -> Result<Ends<T, D>, Self> {
        let ends = self.0.rejoin(|place| {
            place.state.store(EMPTY, Ordering::Relaxed);
            // SAFETY: nobody else has the place.
            place.value.with_mut(|value| unsafe { *value = None });
            change(place.details.get_mut().unwrap_or_else(PoisonError::into_inner));
        });
        let (giver, taker) = ends.map_err(Self)?;
        Ok((Giver(giver), Taker(taker)))
    }
}
