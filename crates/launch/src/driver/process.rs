//! Starting programs fast, with unsafe code for what has to happen between clone and exec.
//!
//! As posix_spawn(3) does, the child runs in this process's memory until it is another program, while this one waits:
//! nothing is copied. posix_spawn itself cannot tie a process's life to its parent's, nor set limits and cores; and it
//! copies the table of descriptors, which an agent of a thousand ranks pays with the square of their number. So the
//! child shares the table too, until close_range(2) gives it one of its own that has only the lowest.

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_int, c_void},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    ptr,
};

use ropewalk_launch_core::Segment;
use rustix::process::{Pid, Rlimit, WaitOptions, getpid, waitpid};

/// The number of the descriptor for PMI. Ranks inherit it and [`LINK_FD`] besides their standard streams.
pub(super) const PMI_FD: RawFd = 6;
/// See [`PMI_FD`].
pub(super) const LINK_FD: RawFd = 7;
const FIRST_SLOT: RawFd = 3;
/// The first descriptor that no child inherits.
const INHERITED_END: RawFd = 8;

/// Descriptors 3 to 7 of this process, through which children get theirs.
pub(super) struct Slots {
    null: File,
}

/// The descriptors that a child gets as standard input, output and error, for PMI, and as the link to its
/// agent.
pub(super) struct Inherited {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) pmi: OwnedFd,
    pub(super) link: OwnedFd,
}

impl Slots {
    /// Takes the descriptors over. Whatever else this process inherited beyond its standard streams is closed.
    ///
    /// # Safety
    /// To be called before anything in this process owns a descriptor from 3 on.
    pub(super) unsafe fn reserve() -> io::Result<Self> {
        // SAFETY: nobody owns what is closed, as the caller has promised.
        unsafe { close_from(FIRST_SLOT, 0) }?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let mut slots = Vec::new();
        while slots.len() < (INHERITED_END - FIRST_SLOT) as usize {
            slots.push(null.try_clone()?);
        }
        // What was opened first may have one of the slots; it moves behind them.
        let behind = rustix::io::fcntl_dupfd_cloexec(&null, INHERITED_END)?;
        slots.push(null);
        for slot in slots {
            // From now on the slots are nobody else's, and stay open.
            let kept = (FIRST_SLOT..INHERITED_END).contains(&slot.as_raw_fd());
            if kept {
                std::mem::forget(slot);
            }
        }
        Ok(Self { null: behind.into() })
    }

    /// A descriptor of /dev/null, for a child that reads nothing.
    pub(super) fn null(&self) -> io::Result<OwnedFd> {
        self.null.try_clone().map(OwnedFd::from)
    }

    fn fill(&mut self, sources: [RawFd; 5]) -> io::Result<()> {
        for (slot, source) in (FIRST_SLOT..).zip(sources) {
            // SAFETY: the slot is ours as long as this process lives, and nobody else's: `reserve` took it.
            check(unsafe { libc::dup3(source, slot, libc::O_CLOEXEC) })?;
        }
        Ok(())
    }
}

/// A program that many processes run.
pub(super) struct Program {
    /// Where it may be, in order.
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    directory: Option<CString>,
}

/// The descriptors, the environment and the limits that a process gets besides its program.
pub(super) struct ProcessOptions<'a> {
    pub(super) inherited: Inherited,
    /// `NAME=VALUE`.
    pub(super) environment: &'a [&'a CStr],
    /// The limit on its descriptors.
    pub(super) descriptors: Rlimit,
    /// The processors that it may run on; all if `None`.
    pub(super) processors: Option<&'a [u32]>,
    /// Signals other than SIGKILL and SIGSTOP do nothing to it.
    pub(super) blocks_signals: bool,
}

/// Why a process could not be started.
#[derive(Debug)]
pub(super) enum ProcessError {
    /// It cannot be in its working directory.
    Directory(io::Error),
    /// The program cannot be executed.
    Execute(io::Error),
    /// The system refused a process, or a part of one.
    System(io::Error),
}

impl Program {
    /// The file that is executed, if it is there.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let directory = self
            .directory
            .as_ref()
            .map(|path| OsStr::from_bytes(path.to_bytes()));
        let directory = Path::new(directory.unwrap_or(OsStr::new("")));
        let mut files = self
            .candidates
            .iter()
            .map(|path| directory.join(OsStr::from_bytes(path.to_bytes())));
        files.find(|path| path.is_file())
    }

    /// Looks for the program as execvp(3) does, in `path` if its name has no slash.
    pub(super) fn new(segment: &Segment, path: &OsStr) -> io::Result<Self> {
        let name = segment.program.as_bytes();
        let mut candidates = Vec::new();
        if name.contains(&b'/') {
            candidates.push(CString::new(name)?);
        } else {
            for directory in path.as_bytes().split(|&byte| byte == b':') {
                let directory = if directory.is_empty() { b"." } else { directory };
                let candidate = [directory, b"/", name].concat();
                // What is not there now need not be tried for each process; what is relative is looked for from its
                // working directory.
                if directory[0] != b'/' || Path::new(OsStr::from_bytes(&candidate)).exists() {
                    candidates.push(CString::new(candidate)?);
                }
            }
        }
        let arguments = std::iter::once(&segment.program).chain(&segment.arguments);
        let directory = segment.working_directory.as_ref();
        Ok(Self {
            candidates,
            arguments: arguments
                .map(|argument| CString::new(argument.as_bytes()))
                .collect::<Result<_, _>>()?,
            directory: directory
                .map(|path| CString::new(path.as_os_str().as_bytes()))
                .transpose()?,
        })
    }
}

/// Starts a process in a session and process group of its own, which dies with this one, and waits until it runs the
/// program.
pub(super) fn start(
    program: &Program,
    slots: &mut Slots,
    options: &ProcessOptions<'_>,
) -> Result<Pid, ProcessError> {
    let pointers = |strings: &mut dyn Iterator<Item = &CStr>| -> Vec<*const c_char> {
        strings.map(CStr::as_ptr).chain([ptr::null()]).collect()
    };
    let arguments = pointers(&mut program.arguments.iter().map(CString::as_c_str));
    let environment = pointers(&mut options.environment.iter().copied());
    // A script without an interpreter is the shell's, as for execvp(3).
    let mut script = vec![c"sh".as_ptr(), ptr::null()];
    script.extend(arguments.get(1..).unwrap_or_default());
    let Inherited {
        stdin,
        stdout,
        stderr,
        pmi,
        link,
    } = &options.inherited;
    let sources = [stdin, stdout, stderr, pmi, link].map(AsRawFd::as_raw_fd);
    slots.fill(sources).map_err(ProcessError::System)?;
    let mut child = Child {
        parent: getpid().as_raw_nonzero().get(),
        program,
        arguments: &arguments,
        environment: &environment,
        script: &mut script,
        descriptors: libc::rlimit {
            rlim_cur: options.descriptors.current.unwrap_or(libc::RLIM_INFINITY),
            rlim_max: options.descriptors.maximum.unwrap_or(libc::RLIM_INFINITY),
        },
        processors: options.processors.map(processor_set),
        blocks_signals: options.blocks_signals,
        failure: None,
    };
    // Not written here: most of it is never touched.
    let mut stack = Vec::<u8>::with_capacity(STACK_SIZE);
    let end = (stack.as_mut_ptr() as usize + STACK_SIZE) & !0xf;
    // SAFETY: no signal handler of this process may run in the child, in our memory: all are blocked until it has
    // another. The mask is our own.
    let (result, errno) = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
        // The kernel lets us go on only when the child has left our memory, so that what it points to and its stack,
        // which has room for what it calls, outlive its use.
        let result = libc::clone(run_child, end as *mut c_void, flags, (&raw mut child).cast());
        let errno = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        (result, errno)
    };
    let failure = child.failure.take();
    // The other ends must see the child go.
    let null = slots.null.as_raw_fd();
    slots.fill([null; 5]).map_err(ProcessError::System)?;
    let Some(pid) = (result > 0).then(|| Pid::from_raw(result)).flatten() else {
        return Err(ProcessError::System(errno));
    };
    match failure {
        None => Ok(pid),
        Some((step, errno)) => {
            // It has ended already.
            let _ = waitpid(Some(pid), WaitOptions::empty());
            let error = io::Error::from_raw_os_error(errno);
            Err(match step {
                Step::Directory => ProcessError::Directory(error),
                Step::Execute => ProcessError::Execute(error),
                Step::Prepare => ProcessError::System(error),
            })
        }
    }
}

/// The size of the stack that a child may need before it is another program, in bytes: it makes a few calls,
/// none of them deep.
const STACK_SIZE: usize = 64 << 10;

/// The data that the child works with, in memory that it shares with its parent.
struct Child<'a> {
    parent: c_int,
    program: &'a Program,
    arguments: &'a [*const c_char],
    environment: &'a [*const c_char],
    /// The arguments of a shell, with a place for the script.
    script: &'a mut [*const c_char],
    descriptors: libc::rlimit,
    processors: Option<libc::cpu_set_t>,
    blocks_signals: bool,
    /// Why it ended before it ran the program.
    failure: Option<(Step, c_int)>,
}

#[derive(Clone, Copy)]
enum Step {
    Directory,
    Execute,
    Prepare,
}

extern "C" fn run_child(child: *mut c_void) -> c_int {
    // SAFETY: `start` passes its `Child`, which nobody else uses while this runs.
    let child = unsafe { &mut *child.cast::<Child<'_>>() };
    // SAFETY: this runs in the child, which `become_program` asks for.
    let failure = unsafe { child.become_program() };
    child.failure = Some(failure);
    127
}

impl Child<'_> {
    /// Returns only if that failed. Makes system calls and nothing else: no allocation, no lock, no panic, for its
    /// memory is its parent's.
    ///
    /// # Safety
    /// To be called in a child that shares memory and descriptors with a parent that waits.
    unsafe fn become_program(&mut self) -> (Step, c_int) {
        // SAFETY: system calls on descriptors that the parent keeps for this purpose, once the table is the child's
        // own, and with pointers to what outlives them.
        unsafe {
            let failed = |step| (step, *libc::__errno_location());
            if close_from(INHERITED_END, libc::CLOSE_RANGE_UNSHARE).is_err() {
                // Before Linux 5.9 the table is copied, and what is not inherited is closed by exec.
                if libc::unshare(libc::CLONE_FILES) < 0 {
                    return failed(Step::Prepare);
                }
            }
            for (slot, target) in [(FIRST_SLOT, 0), (FIRST_SLOT + 1, 1), (FIRST_SLOT + 2, 2)] {
                if libc::dup2(slot, target) < 0 {
                    return failed(Step::Prepare);
                }
            }
            for kept in [PMI_FD, LINK_FD] {
                if libc::fcntl(kept, libc::F_SETFD, 0) < 0 {
                    return failed(Step::Prepare);
                }
            }
            // In a session of its own, as under Hydra: what the terminal sends reaches ranks only through the
            // launcher, and Linux's automatic grouping (sched(7)) gives each a fair share of the cores.
            if libc::setsid() < 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return failed(Step::Prepare);
            }
            if libc::getppid() != self.parent {
                // The parent died before the line above, which therefore will not tell us.
                return (Step::Prepare, libc::ESRCH);
            }
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.descriptors) < 0 {
                return failed(Step::Prepare);
            }
            if let Some(set) = &self.processors
                && libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const *set) < 0
            {
                return failed(Step::Prepare);
            }
            // Rust ignores SIGPIPE, and exec would keep that.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            if !self.blocks_signals {
                let mut none = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            }
            if let Some(directory) = &self.program.directory
                && libc::chdir(directory.as_ptr()) < 0
            {
                return failed(Step::Directory);
            }
            let mut refused = libc::ENOENT;
            for candidate in &self.program.candidates {
                libc::execve(
                    candidate.as_ptr(),
                    self.arguments.as_ptr(),
                    self.environment.as_ptr(),
                );
                match *libc::__errno_location() {
                    libc::ENOENT | libc::ENOTDIR => {}
                    libc::EACCES => refused = libc::EACCES,
                    libc::ENOEXEC => {
                        self.script[1] = candidate.as_ptr();
                        libc::execve(
                            c"/bin/sh".as_ptr(),
                            self.script.as_ptr(),
                            self.environment.as_ptr(),
                        );
                        return failed(Step::Execute);
                    }
                    other => return (Step::Execute, other),
                }
            }
            (Step::Execute, refused)
        }
    }
}

/// Closes all descriptors from `first` on. Makes a system call and nothing else.
///
/// # Safety
/// Nobody may own them.
pub(super) unsafe fn close_from(first: RawFd, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: as the caller has promised.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn check(result: c_int) -> io::Result<()> {
    match result {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn processor_set(numbers: &[u32]) -> libc::cpu_set_t {
    // SAFETY: all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &number in numbers {
        if (number as usize) < 8 * size_of::<libc::cpu_set_t>() {
            // SAFETY: the number is inside the set.
            unsafe { libc::CPU_SET(number as usize, &mut set) };
        }
    }
    set
}
