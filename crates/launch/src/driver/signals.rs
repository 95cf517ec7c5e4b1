//! Signals: those of an agent are told by a descriptor. With unsafe code to block signals, to ask for their
//! actions, and to stop this process.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
    ptr,
};

use ropewalk_membership::Cause;
use rustix::{
    fs::{Mode, OFlags, open},
    io::{Errno, read},
    process::{Pid, WaitOptions, getpgrp, wait},
    termios::tcgetpgrp,
};

/// A change of state of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildNews {
    Continued,
    Gone(Cause),
    Stopped(i32),
}

/// A descriptor that is readable when something became of a child, or when a signal came that is for the job.
pub(super) struct ChildSignals {
    descriptor: OwnedFd,
}

impl ChildSignals {
    /// The signals by which batch systems tell a job that it will be ended.
    const FOR_JOB: [i32; 2] = [libc::SIGUSR1, libc::SIGTERM];

    /// Blocks these signals for this thread and those that it starts.
    pub(super) fn listen() -> io::Result<Self> {
        // SAFETY: the set is made before its use; the descriptor is new and nobody else's.
        let descriptor = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            for signal in Self::FOR_JOB {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { descriptor })
    }

    /// The descriptor to wait on.
    pub(super) fn as_owned_fd(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Takes the signals that came: of children [`next_child`] tells more, those for the job are returned.
    pub(super) fn drain(&self) -> Vec<i32> {
        let mut for_job = Vec::new();
        let mut bytes = [0u8; 8 * size_of::<libc::signalfd_siginfo>()];
        loop {
            let length = match read(&self.descriptor, &mut bytes) {
                Ok(length @ 1..) => length,
                Err(Errno::INTR) => continue,
                _ => return for_job,
            };
            for info in bytes[..length].chunks(size_of::<libc::signalfd_siginfo>()) {
                // The number stands first (signalfd(2)).
                let number = info.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number));
                if Self::FOR_JOB.contains(&number) {
                    for_job.push(number);
                }
            }
        }
    }
}

/// Stops this process until somebody lets it go on, and returns then. It is not stopped in the foreground of
/// a terminal behind which no shell waits that could let it go on, as in that of `ssh -t`.
pub(super) fn stop_this_process() {
    // A batch system that suspends a job sees to it that the job goes on, and has no terminal.
    if !is_in_foreground() {
        // SAFETY: nothing but a call; to the calling thread, so that it is stopped before the call returns. It cannot
        // fail with a signal that there is.
        unsafe {
            libc::raise(libc::SIGSTOP);
        }
        return;
    }
    // SAFETY: an action of zeros is the default one, with no flags; the one before is written before it is read, and
    // is put back. The signal goes to the calling thread, which does not block it, as it was told of one: by the
    // return of the call the process was stopped and goes on, or the system has dropped the signal, because the
    // process group is orphaned (POSIX 2.4.3).
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut before) == 0 {
            libc::raise(libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, &raw const before, ptr::null_mut());
        }
    }
}

/// Returns true if this process is one of those that its terminal's keys are for.
fn is_in_foreground() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = open("/dev/tty", flags, Mode::empty());
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal) == Ok(getpgrp()))
}

/// Returns true if this process ignores the signal so far.
pub(super) fn is_ignored(signal: i32) -> bool {
    // SAFETY: an action of zeros is one; it is written, and read after that only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// The next change of state of a child, any of them; a child that is gone is reaped. Never waits.
pub(super) fn next_child() -> Option<(Pid, ChildNews)> {
    let options = WaitOptions::UNTRACED | WaitOptions::CONTINUED | WaitOptions::NOHANG;
    let (pid, status) = wait(options).ok().flatten()?;
    let news = match (
        status.exit_status(),
        status.terminating_signal(),
        status.stopping_signal(),
    ) {
        (Some(code), _, _) => ChildNews::Gone(Cause::Exited(code)),
        (None, Some(signal), _) => ChildNews::Gone(Cause::Signalled(signal)),
        (None, None, Some(signal)) => ChildNews::Stopped(signal),
        (None, None, None) => ChildNews::Continued,
    };
    Some((pid, news))
}
