//! `fork` without `exec`.

use std::time::Duration;

/// Copies this process. The copy does nothing, but keeps what it inherited, until it is killed or the time is over.
/// Returns its process id.
pub(crate) fn fork_idle(time: Duration) -> i32 {
    // SAFETY: between `fork` and `_exit` the copy only calls `sleep`, which is safe after a fork in a process of
    // several threads.
    unsafe {
        match libc::fork() {
            0 => {
                libc::sleep(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
                libc::_exit(0)
            }
            child => child,
        }
    }
}
