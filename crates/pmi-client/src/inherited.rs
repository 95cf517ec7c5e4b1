//! Taking over a descriptor that the process manager opened for us.

use std::{
    io,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
};

/// The socket behind an inherited descriptor, closed on exec from now on.
pub(super) fn take(descriptor: u32) -> io::Result<UnixStream> {
    let descriptor = RawFd::try_from(descriptor).map_err(io::Error::other)?;
    if descriptor <= 2 {
        return Err(io::Error::other("0, 1 and 2 are standard input and output"));
    }
    // SAFETY: the process manager opened this descriptor for us and names it in PMI_FD; our caller's contract
    // is to take it once, so that nobody else owns it. If it is not open after all, the clone below fails and
    // closing it does nothing.
    let inherited = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // An inherited descriptor must lack close-on-exec, and its clone has it.
    match inherited.try_clone() {
        Ok(clone) => Ok(UnixStream::from(clone)),
        Err(error) => {
            // Debug builds of the standard library abort when a descriptor that is not open is closed.
            std::mem::forget(inherited);
            Err(error)
        }
    }
}
