//! The agent of the launcher's own host as a fork of the launcher, with unsafe code to fork and to give it its name.
//!
//! Another execution of the same file would be bound to its libraries once more, which takes as long as all else that
//! happens before the first rank runs, and what that writes would be in memory twice.

use std::{
    env,
    ffi::{OsStr, c_char, c_int},
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    panic::{AssertUnwindSafe, catch_unwind},
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, setsid},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

use super::{agent_process, branch::Position, keeper, session::Spawned};

unsafe extern "C" {
    /// Of glibc and of musl: the first of the words that this process was started with.
    static program_invocation_name: *mut c_char;
}

/// Forks the agent off that has this position. It leads a session of its own, and its standard input is its
/// life line, as for an agent that was executed. `None` if this process has more threads than one: then a
/// child may not do what its parent may.
pub(super) fn fork_agent(position: impl FnOnce() -> Position) -> io::Result<Option<Spawned>> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Ok(None);
    }
    let (its_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: this is the only thread, so that no lock is held by anybody else, and the child never returns to what its
    // parent was about to do: it ends in `run`.
    match unsafe { libc::fork() } {
        ..0 => Err(io::Error::last_os_error()),
        0 => {
            let code =
                catch_unwind(AssertUnwindSafe(|| run(its_stdin, its_stderr, position()))).unwrap_or(PANICKED);
            // SAFETY: nothing of this process remains. What its parent wants done at its own exit is not for the child.
            unsafe { libc::_exit(c_int::from(code)) }
        }
        pid => Ok(Some(Spawned {
            pid: Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork told no number"))?,
            stdin,
            stderr,
        })),
    }
}

/// As after a panic in `main`.
const PANICKED: u8 = 101;

fn run(stdin: OwnedFd, stderr: OwnedFd, position: Position) -> u8 {
    match settle_in(&stdin, &stderr) {
        Ok(()) => {
            drop((stdin, stderr));
            // SAFETY: what its parent owned, nobody in this process does; there is one thread.
            unsafe { agent_process::serve(Some(position)) }
        }
        // Whoever reads what agents say does not yet read this.
        Err(_) => keeper::FAILED,
    }
}

/// Does what posix_spawn(3) and exec would do.
fn settle_in(stdin: &OwnedFd, stderr: &OwnedFd) -> io::Result<()> {
    setsid()?;
    dup2_stdin(stdin)?;
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    dup2_stderr(stderr)?;
    // SAFETY: the set is made before its use, and handlers are taken away only.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGCHLD] {
            let mut action: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0;
            if is_known && action.sa_sigaction != libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
    rename();
    Ok(())
}

/// Lets ps(1) and /proc show an agent where they would show the words of the launcher.
fn rename() {
    let mut words = env::args_os();
    let Some(program) = words.next() else {
        return;
    };
    let size = words.fold(program.len() + 1, |size, word| size + word.len() + 1);
    let name = name_in(&program, size);
    // SAFETY: the words stand one behind the other from the first on (ELF's start of a process), each with a zero
    // behind it, so that there is room for `size` bytes; a zero remains at the end. There is one thread, and whoever
    // reads words in the agent gets a copy.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), program_invocation_name.cast(), name.len()) };
}

/// The words `<program> agent` in a list of words of `size` bytes: cut off or filled with zeros.
fn name_in(program: &OsStr, size: usize) -> Vec<u8> {
    let mut name = [program.as_bytes(), b"\0agent"].concat();
    name.resize(size, 0);
    if let Some(last) = name.last_mut() {
        *last = 0;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of an agent takes exactly the room of the words that it replaces, and ends with a zero.
    #[test]
    fn a_name_fits() {
        assert_eq!(name_in(OsStr::new("r"), 12), b"r\0agent\0\0\0\0\0");
        assert_eq!(name_in(OsStr::new("r"), 8), b"r\0agent\0");
        assert_eq!(name_in(OsStr::new("r"), 4), b"r\0a\0");
        assert_eq!(name_in(OsStr::new("r"), 2), b"r\0");
    }
}
