//! Waking the thread that drives an endpoint.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{EventfdFlags, eventfd};

/// Makes an endpoint's descriptor readable, from any thread, so that its driver looks at what others left for
/// it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    descriptor: OwnedFd,
    /// Set before the descriptor is written and cleared after it was read, so that a driver that is awake
    /// costs no system call.
    woken: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared {
            descriptor,
            woken: AtomicBool::new(false),
        })))
    }

    /// Wakes the driver. What this thread wrote before, the driver sees after its next
    /// [`progress`](crate::Endpoint::progress) began.
    pub fn wake(&self) {
        if !self.0.woken.swap(true, Ordering::SeqCst) {
            // Only a full counter can refuse, and it is at most 1.
            let _ = rustix::io::write(&self.0.descriptor, &1u64.to_ne_bytes());
        }
    }

    /// Takes the wish to be woken, if there is one.
    pub(crate) fn take(&self) -> bool {
        if !self.0.woken.load(Ordering::SeqCst) {
            return false;
        }
        // Not yet readable means that a `wake` is between its two steps: it is taken next time.
        let taken = rustix::io::read(&self.0.descriptor, &mut [0; 8]).is_ok();
        if taken {
            self.0.woken.store(false, Ordering::SeqCst);
        }
        taken
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}
