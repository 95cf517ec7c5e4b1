//! The process above an agent, with unsafe code to fork it off: it ends what the agent cannot end any more.

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
        set_parent_process_death_signal, waitpid,
    },
};

use super::{
    agent_process::FAILED,
    descendants,
    idle_memory::{IdleMemory, give_back},
};

/// Which of the two a process is after [`fork`].
pub(super) enum Part {
    /// The agent; it dies with its keeper.
    Agent,
    /// The keeper, when all is over, with the exit code of the agent: 128 + n if signal n killed it.
    Keeper(u8),
}

/// How long the agent has to end by itself once the one who started it is gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// Parts this process in two. The keeper waits until the agent is gone, however that happens, and then kills whatever
/// descends from it: orphans become children of the keeper, wherever they went and whatever they forgot. If standard
/// input, the line to whoever started the agent, ends, the agent is killed unless it ends by itself: also if it is
/// stopped, or its host cut off from the one above.
///
/// # Safety
/// To be called while the process has one thread.
pub(super) unsafe fn fork() -> io::Result<Part> {
    descendants::adopt_orphans();
    let keeper = getpid();
    // SAFETY: with a single thread no lock is held by anybody else, so that the child may do what its parent may.
    let pid = unsafe { libc::fork() };
    match pid {
        ..0 => Err(io::Error::last_os_error()),
        0 => {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(keeper) {
                return Err(io::Error::other("its keeper died"));
            }
            Ok(Part::Agent)
        }
        pid => {
            let agent = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork told no number"))?;
            keep(agent).map(Part::Keeper)
        }
    }
}

fn keep(agent: Pid) -> io::Result<u8> {
    let pidfd = pidfd_open(agent, PidfdFlags::empty())?;
    let mut deadline = None;
    let mut is_settled = false;
    loop {
        let stdin = rustix::stdio::stdin();
        let mut polled = vec![PollFd::new(&pidfd, PollFlags::IN)];
        if deadline.is_none() {
            polled.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
        }
        let left = deadline.map(|deadline: Instant| deadline.saturating_duration_since(Instant::now()));
        let left = left.or((!is_settled).then_some(IdleMemory::DELAY));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) if deadline.is_none() => {
                give_back();
                is_settled = true;
            }
            Ok(0) => {
                // Gone already is what we want.
                let _ = kill_process(agent, Signal::KILL);
                deadline = Some(Instant::now() + PATIENCE);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_line_ready = polled.get(1).is_some_and(|polled| !polled.revents().is_empty());
        if is_line_ready && !matches!(rustix::io::read(stdin, &mut [0; 256]), Ok(1..)) {
            deadline = Some(Instant::now() + PATIENCE);
        }
        if let Some((_, status)) = waitpid(Some(agent), WaitOptions::NOHANG)? {
            descendants::kill_all();
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = signal.or(status.exit_status()).unwrap_or(i32::from(FAILED));
            return Ok(u8::try_from(code).unwrap_or(FAILED));
        }
    }
}
