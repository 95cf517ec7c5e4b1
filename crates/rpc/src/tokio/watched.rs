//! A descriptor that the runtime watches.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use tokio::io::{Interest, unix::AsyncFd};

/// Has the runtime tell when the descriptor, or what it is a duplicate of, becomes readable.
pub(super) fn watch(descriptor: &impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    let own = rustix::io::dup(descriptor)?;
    // SAFETY: the descriptor must stay open and the same until the registration ends: it was just opened, and the
    // registration owns it; nobody but the caller of this function has access, which is shared everywhere in
    // this crate, and an `OwnedFd` cannot be changed or closed by that.
    Ok(unsafe { AsyncFd::register_with_interest(own, Interest::READABLE) }?)
}
