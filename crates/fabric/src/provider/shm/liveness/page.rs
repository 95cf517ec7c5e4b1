//! The page with a process' robust mutex, at both ends.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use rustix::fs::{SealFlags, fcntl_add_seals};

use crate::memfd::SharedMapping;

const PAGE_SIZE: usize = 4096;
/// Set in a robust mutex' word by the kernel when the thread that holds it ends; see linux/futex.h.
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER: u32 = 0x3fff_ffff;

/// This process' page. It is never unmapped: the kernel and the C library have pointers into it.
struct OwnPage {
    pid: u32,
    descriptor: OwnedFd,
    mapping: SharedMapping,
}

/// A peer's page. Only its owner can write it.
#[derive(Debug)]
pub(super) struct PeerPage {
    mapping: SharedMapping,
}

/// The descriptor of this process' page, for its peers. The page is made when it is first asked for, and anew if this
/// process is a fork of the one that did. If the thread that held its mutex has ended since, the one that asks takes it
/// over: pages are never given back, and a process may have any number of threads one after the other.
///
/// # Errors
/// If the system is out of descriptors or memory, or the C library's mutexes are not what is expected.
pub(crate) fn own_page() -> io::Result<OwnedFd> {
    // A lock would stay locked in a child that is forked at the wrong moment.
    static OWN: AtomicPtr<OwnPage> = AtomicPtr::new(std::ptr::null_mut());
    let current = OWN.load(Ordering::Acquire);
    // SAFETY: null, or one that was leaked below and never changes.
    if let Some(page) = unsafe { current.as_ref() }
        && page.pid == std::process::id()
        && page.is_held_or_taken_over()
    {
        return page.descriptor.try_clone();
    }
    let page = Box::leak(Box::new(OwnPage::new()?));
    // If two threads made one, both pages are good.
    OWN.store(page, Ordering::Release);
    page.descriptor.try_clone()
}

impl OwnPage {
    fn new() -> io::Result<Self> {
        let (descriptor, mapping) = SharedMapping::create("ropewalk-liveness", PAGE_SIZE)?;
        // From here on only mappings that exist can write it: ours.
        fcntl_add_seals(&descriptor, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        // Last, because nothing may fail once the C library has a pointer into the mapping.
        hold_mutex(&mapping)?;
        Ok(Self {
            pid: std::process::id(),
            descriptor,
            mapping,
        })
    }

    /// Returns true if a thread that lives holds the mutex. If its holder has ended, this thread tries to
    /// take it over.
    fn is_held_or_taken_over(&self) -> bool {
        if word(&self.mapping) & OWNER_DIED == 0 {
            return true;
        }
        let mutex = self.mapping.start().cast::<libc::pthread_mutex_t>().as_ptr();
        // SAFETY: the mutex was made before the page was seen by anybody, and is never moved or unmapped; it is
        // robust, so that it can be had from a thread that has ended. It protects nothing that would have to be made
        // consistent.
        let code = unsafe { libc::pthread_mutex_trylock(mutex) };
        // Busy: another thread was faster.
        matches!(code, 0 | libc::EBUSY | libc::EOWNERDEAD)
    }
}

impl PeerPage {
    /// Maps a page that a peer handed out.
    ///
    /// # Errors
    /// If it is no memory of a page that stays there.
    pub(super) fn map(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        let mapping = SharedMapping::of(descriptor.as_fd(), PAGE_SIZE, false)?;
        Ok(Self { mapping })
    }

    /// Returns true if the thread that held the mutex has ended.
    #[inline]
    pub(super) fn owner_died(&self) -> bool {
        word(&self.mapping) & OWNER_DIED != 0
    }
}

#[inline]
fn word(mapping: &SharedMapping) -> u32 {
    // SAFETY: the mapping is a page, begins at one, and lives as long as the borrow; any bits are a word; and the
    // kernel and the C library write it atomically.
    unsafe { AtomicU32::from_ptr(mapping.start().cast().as_ptr()) }.load(Ordering::Relaxed)
}

/// Makes a robust mutex at the page's start and locks it for ever, for this thread.
fn hold_mutex(mapping: &SharedMapping) -> io::Result<()> {
    const { assert!(size_of::<libc::pthread_mutex_t>() <= PAGE_SIZE) };
    let mutex = mapping.start().cast::<libc::pthread_mutex_t>().as_ptr();
    let checked = |code| match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    };
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: attributes are made before they are used. The mutex lies in memory that nobody else has yet, is aligned
    // as a page is, and is never moved or unmapped: the mapping is leaked with its page once the mutex is held. If
    // something fails before, it is not held, and nobody has a pointer to it.
    unsafe {
        checked(libc::pthread_mutexattr_init(attributes))?;
        checked(libc::pthread_mutexattr_setpshared(
            attributes,
            libc::PTHREAD_PROCESS_SHARED,
        ))?;
        checked(libc::pthread_mutexattr_setrobust(
            attributes,
            libc::PTHREAD_MUTEX_ROBUST,
        ))?;
        checked(libc::pthread_mutex_init(mutex, attributes))?;
        checked(libc::pthread_mutexattr_destroy(attributes))?;
        checked(libc::pthread_mutex_lock(mutex))?;
    }
    // Where the word is, is the C library's business; it is at the beginning in those that we know.
    let holder = word(mapping) & OWNER;
    if holder != rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs() {
        // SAFETY: this thread has just locked it.
        unsafe { checked(libc::pthread_mutex_unlock(mutex))? };
        return Err(io::Error::other(
            "this C library keeps a mutex' word where nobody can see it: the deaths of peers are seen by their sockets",
        ));
    }
    Ok(())
}
