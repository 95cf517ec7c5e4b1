//! Who is at the other end of a UNIX socket.

use std::{
    io,
    num::NonZeroU32,
    os::fd::{AsRawFd, OwnedFd},
};

/// The user and the number of the process that made or accepts the connection, as the kernel reports them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials {
    /// Its user.
    pub(crate) user: u32,
    /// Its number, if this process sees it under one: it may be in another namespace.
    pub(crate) process: Option<NonZeroU32>,
}

impl Credentials {
    /// Of the process at the other end.
    ///
    /// # Errors
    /// If it is no UNIX socket, or not connected.
    pub(crate) fn of_peer(socket: &OwnedFd) -> io::Result<Self> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the option's value is a `ucred`, and no more than `length` bytes are written to it.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &raw mut length,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            user: credentials.uid,
            process: u32::try_from(credentials.pid).ok().and_then(NonZeroU32::new),
        })
    }
}
