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
    /// True if the driver is to look.
    woken: AtomicBool,
    /// True if the driver may be asleep. A driver that is awake, which may be the very thread that wakes,
    /// looks at `woken` before it sleeps and is spared the descriptor.
    asleep: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared {
            descriptor,
            woken: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        })))
    }

    /// Wakes the driver. What this thread wrote before, the driver sees after its next
    /// [`progress`](crate::Endpoint::progress) began.
    pub fn wake(&self) {
        // Either this sees that the driver is asleep, or the driver, before it sleeps, that it was woken.
        if !self.0.woken.swap(true, Ordering::SeqCst) && self.0.asleep.load(Ordering::SeqCst) {
            // Only a full counter can refuse, and then it is readable.
            let _ = rustix::io::write(&self.0.descriptor, &1u64.to_ne_bytes());
        }
    }

    /// Prepares for the driver to sleep. Returns whether it was woken already.
    pub(crate) fn arm(&self) -> bool {
        self.0.asleep.store(true, Ordering::SeqCst);
        self.0.woken.load(Ordering::SeqCst)
    }

    /// Takes the wish to be woken, if there is one: the driver is awake.
    pub(crate) fn take(&self) -> bool {
        if self.0.asleep.load(Ordering::Relaxed) {
            self.0.asleep.store(false, Ordering::SeqCst);
        }
        self.0.woken.load(Ordering::Relaxed) && self.0.woken.swap(false, Ordering::SeqCst)
    }

    /// Makes the descriptor unreadable again, when it was found readable.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.0.descriptor, &mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}
