//! Starting the process of a rank, with unsafe code for what has to happen between fork and exec.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio},
};

use ropewalk_fabric::AgentLink;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getppid, pidfd_open,
        set_parent_process_death_signal, setrlimit,
    },
};

use super::session;
use crate::protocol::{Start, StartError, StartErrorKind};

/// What a rank's process gets beside what all get.
pub(super) struct RankProcessOptions<'a> {
    pub(super) start: &'a Start,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) pmi: OwnedFd,
    pub(super) link: AgentLink,
    pub(super) stdin: Stdio,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// The limit on descriptors that the agent had before it raised its own.
    pub(super) descriptors: Rlimit,
}

/// A process that runs; not killed and not reaped when this is dropped.
pub(super) struct RankProcess {
    pub(super) pid: Pid,
    /// Readable once the process is gone.
    pub(super) pidfd: OwnedFd,
}

impl RankProcess {
    /// Starts the process, in a session and process group of its own, and waits until it runs the program.
    pub(super) fn start(options: RankProcessOptions<'_>) -> Result<Self, StartError> {
        let RankProcessOptions { start, pmi, link, .. } = options;
        let mut command = Command::new(&start.program);
        command
            .args(&start.arguments)
            .env_clear()
            .envs(start.environment.iter().map(|(name, value)| (name, value)))
            .envs(options.variables.iter().map(|(name, value)| (name, value)))
            .env("PMI_FD", pmi.as_raw_fd().to_string())
            .env(AgentLink::VARIABLE, link.as_fd().as_raw_fd().to_string())
            .stdin(options.stdin)
            .stdout(options.stdout)
            .stderr(options.stderr);
        if let Some(directory) = &start.working_directory {
            check_directory(directory)?;
            command.current_dir(directory);
        }
        session::start_own(&mut command);
        before_exec(
            &mut command,
            [pmi.as_raw_fd(), link.as_fd().as_raw_fd()],
            options.descriptors,
        );
        let child = command.spawn().map_err(|error| start_error(&error))?;
        let pid = Pid::from_child(&child);
        // The process is our child and nobody has reaped it, so that its number is still its own.
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)
            .map_err(|errno| system_error("cannot watch its process", &errno.into()))?;
        Ok(Self { pid, pidfd })
    }
}

/// Lets the process inherit two descriptors, and die with its agent even if that is killed.
fn before_exec(command: &mut Command, inherited: [RawFd; 2], limit: Rlimit) {
    let agent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(agent) {
            // The agent died before the line above, which therefore will not tell us.
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        for descriptor in inherited {
            // SAFETY: `RankProcess::start` keeps both descriptors open until after `spawn`, in which this runs.
            let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        setrlimit(Resource::Nofile, limit)?;
        Ok(())
    };
    // SAFETY: between fork and exec only calls that are safe in a signal handler are allowed: these are plain
    // system calls, and what they are given was made before the fork. No allocation: the errors are numbers.
    unsafe { command.pre_exec(prepare) };
}

fn check_directory(directory: &OsString) -> Result<(), StartError> {
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(StartError {
            kind: StartErrorKind::NotFound,
            reason: format!("the working directory {directory:?} is no directory"),
        }),
        Err(error) => Err(StartError {
            kind: StartErrorKind::NotFound,
            reason: format!("the working directory {directory:?} cannot be used: {error}"),
        }),
    }
}

fn start_error(error: &io::Error) -> StartError {
    use io::ErrorKind::{NotADirectory, NotFound, OutOfMemory, QuotaExceeded, WouldBlock};
    let kind = match (
        error.kind(),
        error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
    ) {
        (NotFound | NotADirectory, _) => StartErrorKind::NotFound,
        (OutOfMemory | QuotaExceeded | WouldBlock, _) => StartErrorKind::System,
        (_, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::SRCH)) => {
            StartErrorKind::System
        }
        _ => StartErrorKind::NotExecutable,
    };
    let reason = error.to_string();
    StartError { kind, reason }
}

/// Something that a rank needs could not be made.
pub(super) fn system_error(what: &str, error: &io::Error) -> StartError {
    StartError {
        kind: StartErrorKind::System,
        reason: format!("{what}: {error}"),
    }
}
