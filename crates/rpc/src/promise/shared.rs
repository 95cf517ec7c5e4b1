//! A value that two ends own together.

#![allow(
    unsafe_code,
    reason = "the second end to leave frees the value, the first must not touch it any more"
)]

use std::{marker::PhantomData, ops::Deref, ptr::NonNull};

use super::memory::{AtomicBool, Ordering};

/// One of the two owners of a value, which goes with the second of them.
///
/// There are never more, so that one that stays can see by a look that the other has left, and be both again: an `Arc`
/// would take a locked operation to see that and another one to be shared again. Each of them waits until all that
/// was written before is in memory, which after a message was written for another process takes that long.
pub(super) struct End<T> {
    both: NonNull<Both<T>>,
    owns: PhantomData<Both<T>>,
}

struct Both<T> {
    /// One end has left.
    left: AtomicBool,
    value: T,
}

// SAFETY: either end may be the one that drops the value, in its thread, and both may look at it at the same time.
unsafe impl<T: Send + Sync> Send for End<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for End<T> {}

impl<T> End<T> {
    /// Both ends of a value.
    pub(super) fn pair(value: T) -> (Self, Self) {
        let both = Box::new(Both {
            left: AtomicBool::new(false),
            value,
        });
        Self::ends(NonNull::from(Box::leak(both)))
    }

    /// Both ends again, after the other has left; what follows from that is done to the value before.
    ///
    /// # Errors
    /// This end, if the other is there still.
    #[inline]
    pub(super) fn rejoin(mut self, change: impl FnOnce(&mut T)) -> Result<(Self, Self), Self> {
        // SAFETY: the value lives as long as this end.
        if !unsafe { self.both.as_ref() }.left.load(Ordering::Acquire) {
            return Err(self);
        }
        // SAFETY: the other end has left, and this one is not shared with anybody.
        let both = unsafe { self.both.as_mut() };
        // If this panics, the other end counts as gone still.
        change(&mut both.value);
        both.left.store(false, Ordering::Relaxed);
        let ends = Self::ends(self.both);
        std::mem::forget(self);
        Ok(ends)
    }

    fn ends(both: NonNull<Both<T>>) -> (Self, Self) {
        let end = || Self {
            both,
            owns: PhantomData,
        };
        (end(), end())
    }
}

/// The value stays where it is.
impl<T> Unpin for End<T> {}

impl<T> Deref for End<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it lives as long as one of the ends, and is changed only when there is no other.
        unsafe { &self.both.as_ref().value }
    }
}

impl<T> Drop for End<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value lives as long as this end.
        let first = !unsafe { self.both.as_ref() }.left.swap(true, Ordering::AcqRel);
        if !first {
            // SAFETY: it came from a box, and the other end has left before: nobody has it but this.
            drop(unsafe { Box::from_raw(self.both.as_ptr()) });
        }
    }
}
