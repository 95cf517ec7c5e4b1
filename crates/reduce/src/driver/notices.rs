//! The notices of a foreign process manager that a rank is gone.

use std::{env, ptr};

/// Lets this process survive Hydra's notice that another rank is gone.
///
/// `mpiexec.hydra -disable-auto-cleanup` sends SIGUSR1 to all ranks when one has failed, which ends a process that did
/// not say otherwise. A program that handles the signal, or is about to, is left alone.
pub(super) fn survive() {
    if env::var_os(MARK_OF_HYDRA).is_some() {
        ignore_unless_handled(libc::SIGUSR1);
    }
}

fn ignore_unless_handled(signal: libc::c_int) {
    // SAFETY: all bits zero is a valid `sigaction`, as which the kernel fills it in; a null pointer for the new action
    // changes nothing.
    let known = unsafe {
        let mut known: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, ptr::null(), &raw mut known) == 0).then_some(known.sa_sigaction)
    };
    if known == Some(libc::SIG_DFL) {
        // SAFETY: to ignore a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Hydra sets this variable for the processes that it starts.
const MARK_OF_HYDRA: &str = "HYDI_CONTROL_FD";

#[cfg(test)]
mod tests {
    use super::*;

    fn handler_of(signal: libc::c_int) -> usize {
        // SAFETY: as above.
        unsafe {
            let mut known: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(signal, ptr::null(), &raw mut known), 0);
            known.sa_sigaction
        }
    }

    /// A signal that nobody handles is ignored, and a handler stays.
    #[test]
    fn handlers_stay() {
        extern "C" fn handle(_: libc::c_int) {}
        let handler = handle as *const () as usize;
        // SAFETY: the handler does nothing; nothing else here uses these signals.
        unsafe { libc::signal(libc::SIGUSR2, handler) };
        ignore_unless_handled(libc::SIGUSR2);
        assert_eq!(handler_of(libc::SIGUSR2), handler);
        ignore_unless_handled(libc::SIGURG);
        assert_eq!(handler_of(libc::SIGURG), libc::SIG_IGN);
    }
}
