//! A check that this process is the one that made an endpoint.

use std::{
    io,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A page of memory that the kernel clears in children of this process: to look at it costs no system call.
#[derive(Debug)]
pub(crate) struct ForkGuard(NonNull<AtomicU64>);

// SAFETY: the page is owned by the guard and only ever accessed atomically.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    const SIZE: usize = 4096;

    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice takes no memory of anybody else.
        let page = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                Self::SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let guard = Self(NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: the range is the guard's own page, whose contents nobody relies on.
        unsafe { madvise(page, Self::SIZE, Advice::LinuxWipeOnFork) }?;
        guard.word().store(1, Ordering::Relaxed);
        Ok(guard)
    }

    /// Returns true if this process was forked off the one that made the guard.
    pub(crate) fn is_forked(&self) -> bool {
        self.word().load(Ordering::Relaxed) == 0
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped, aligned and readable and writable until the guard is dropped, in a child too.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, with this size, and nobody has a reference to it any longer.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), Self::SIZE) };
        debug_assert!(unmapped.is_ok(), "the guard's own page can be unmapped");
    }
}
