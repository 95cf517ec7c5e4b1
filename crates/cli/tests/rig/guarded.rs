//! A child that does not outlive the test that started it, also one that panics.

use std::{
    io,
    ops::{Deref, DerefMut},
    process::{Child, Output},
};

/// A child that is killed when this is dropped. A launcher takes its job with it.
pub(crate) struct Guarded(Option<Child>);

impl Guarded {
    /// As [`Child::wait_with_output`].
    pub(crate) fn wait_with_output(mut self) -> io::Result<Output> {
        self.0.take().expect(TAKEN_ONCE).wait_with_output()
    }
}

impl From<Child> for Guarded {
    fn from(child: Child) -> Self {
        Self(Some(child))
    }
}

impl Deref for Guarded {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect(TAKEN_ONCE)
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect(TAKEN_ONCE)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const TAKEN_ONCE: &str = "the child is taken by the method that consumes this";
