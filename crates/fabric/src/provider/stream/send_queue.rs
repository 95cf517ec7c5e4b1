//! How much of what was sent a peer's system has not taken yet.

use std::os::fd::OwnedFd;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ` of Linux: see tcp(7).
const SIOCOUTQ: Opcode = 0x5411;

/// How many bytes of this socket's the peer's system has not taken yet; of a UNIX socket, about how many the peer has
/// not read.
pub(super) fn unacknowledged(socket: &OwnedFd) -> u64 {
    // SAFETY: SIOCOUTQ stores one int through its argument, and reads and writes nothing else.
    let unsent = unsafe { ioctl(socket, Getter::<SIOCOUTQ, std::ffi::c_int>::new()) };
    unsent.map_or(0, |unsent| unsent.max(0) as u64)
}
