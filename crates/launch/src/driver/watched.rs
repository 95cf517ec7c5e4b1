//! Descriptors that the runtime watches.

use std::{
    io,
    ops::Deref,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{Interest, unix::AsyncFd};

/// A descriptor of which the runtime tells when it is ready. It need not be non-blocking: whoever reads or
/// writes it does so with flags that do not wait.
pub(super) type Watched<T> = AsyncFd<Descriptor<T>>;

/// The owner of one descriptor, the same one for as long as it lives.
pub(super) struct Descriptor<T>(T);

/// Types that own one descriptor and never change it.
pub(super) trait OwnsDescriptor: AsFd {}

impl OwnsDescriptor for OwnedFd {}

/// Has the runtime watch this from now on.
pub(super) fn watch<T: OwnsDescriptor>(inner: T, interest: Interest) -> io::Result<Watched<T>> {
    // SAFETY: the descriptor must stay open and the same until the registration ends: `Descriptor` owns it,
    // gives no mutable access to it, and `OwnsDescriptor` is implemented above for types that keep theirs.
    Ok(unsafe { AsyncFd::register_with_interest(Descriptor(inner), interest) }?)
}

/// Returns true if a read would find something now, and also if that cannot be told: a try does no harm.
pub(super) fn is_readable(descriptor: &OwnedFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&at_once)) != Ok(0)
}

impl<T> Deref for Descriptor<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: OwnsDescriptor> AsRawFd for Descriptor<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
