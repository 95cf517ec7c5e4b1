//! Starting a process in a session of its own, with unsafe code for posix_spawn(3).
//!
//! The standard library would fork for that, which copies the page tables of this process for each agent, and then wait
//! until the copy is another program.

use std::{
    ffi::{CStr, CString, OsString, c_char, c_int},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    ptr,
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::Pid,
};

/// A process, the pipe to its standard input and that from its standard error.
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) stdin: OwnedFd,
    pub(super) stderr: OwnedFd,
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Starts a program, looked for in `PATH`, that leads a new session, and in it a new process group. What it prints is
/// dropped.
///
/// As under Hydra: what the terminal sends reaches agents and ranks only through the launcher, what a rank
/// starts is found by its process group, and Linux's automatic grouping (sched(7)) gives the agent and each
/// rank a fair share of the cores, however busy the session is in which the launcher runs.
pub(super) fn spawn(words: &[OsString]) -> io::Result<Spawned> {
    let words: Vec<CString> = words
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<_, _>>()?;
    let [program, ..] = words.as_slice() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let arguments: Vec<*const c_char> = words
        .iter()
        .map(|word| word.as_ptr())
        .chain([ptr::null()])
        .collect();
    let (its_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, its_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut actions = Actions::new()?;
    actions.duplicate(&its_stdin, 0)?;
    actions.open(1, c"/dev/null")?;
    actions.duplicate(&its_stderr, 2)?;
    let attributes = Attributes::new()?;
    let mut pid = 0;
    // SAFETY: actions and attributes are initialised, the list of arguments ends with a null and points to what
    // outlives the call, and nothing in this process changes its environment.
    check(unsafe {
        libc::posix_spawnp(
            &raw mut pid,
            program.as_ptr(),
            actions.0.as_ptr(),
            attributes.0.as_ptr(),
            arguments.as_ptr().cast(),
            environ.cast(),
        )
    })?;
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("posix_spawn told no number"))?;
    Ok(Spawned { pid, stdin, stderr })
}

/// The actions of the child on its descriptors.
struct Actions(MaybeUninit<libc::posix_spawn_file_actions_t>);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: this is what initialises it.
        check(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        Ok(Self(actions))
    }

    fn duplicate(&mut self, from: &OwnedFd, to: c_int) -> io::Result<()> {
        // SAFETY: the actions are initialised; the descriptors are open until the child has been started.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(self.0.as_mut_ptr(), from.as_raw_fd(), to) })
    }

    fn open(&mut self, to: c_int, path: &CStr) -> io::Result<()> {
        // SAFETY: the actions are initialised; they keep a copy of the path.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(self.0.as_mut_ptr(), to, path.as_ptr(), libc::O_WRONLY, 0)
        })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: they are initialised, and not used any more.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

/// The attributes of the child: its session and its signals.
struct Attributes(MaybeUninit<libc::posix_spawnattr_t>);

impl Attributes {
    /// Of a session of its own, with no signal blocked, nor SIGPIPE ignored, as Rust has it.
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: this is what initialises it.
        check(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        let mut attributes = Self(attributes);
        let pointer = attributes.0.as_mut_ptr();
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: the attributes are initialised, and so are the sets before they are used.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            check(libc::posix_spawnattr_setsigmask(pointer, &raw const set))?;
            libc::sigaddset(&raw mut set, libc::SIGPIPE);
            check(libc::posix_spawnattr_setsigdefault(pointer, &raw const set))?;
            check(libc::posix_spawnattr_setflags(
                pointer,
                (flags | POSIX_SPAWN_SETSID) as libc::c_short,
            ))?;
        }
        Ok(attributes)
    }
}

/// Of glibc since 2.26, and of musl.
const POSIX_SPAWN_SETSID: c_int = 0x80;

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: they are initialised, and not used any more.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
    }
}

fn check(errno: c_int) -> io::Result<()> {
    match errno {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
