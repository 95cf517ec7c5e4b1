//! The atomics and cells that threads share, in the shape that a model of all their interleavings has them
//! in.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A value that may be reached from a shared place.
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
