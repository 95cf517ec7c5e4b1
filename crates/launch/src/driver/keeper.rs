//! The process above an agent, with unsafe code to fork it off: it ends what the agent cannot end any more.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicI32, Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, pidfd_open,
        set_parent_process_death_signal, waitpid,
    },
};

use super::{
    descendants,
    idle_memory::{IdleMemory, give_back},
    shared_memory::Killed,
};

/// Which of the two a process is after [`fork`].
pub(super) enum Part {
    /// The agent; it dies with its keeper.
    Agent(KeeperLine),
    /// The keeper, when all is over, with the exit code of the agent: 128 + n if signal n killed it.
    Keeper(u8),
}

/// How an agent tells its keeper that it goes on although the one who started it is gone.
pub(super) struct KeeperLine(OwnedFd);

impl KeeperLine {
    /// The launcher is asked to be the node above; that is known after this time.
    pub(super) fn tell_orphaned(&self, detect: Duration) {
        let patience = detect.saturating_mul(ORPHAN_PATIENCE).as_millis();
        self.tell(u64::try_from(patience).unwrap_or(u64::MAX).max(ADOPTED + 1));
    }

    /// It is.
    pub(super) fn tell_adopted(&self) {
        self.tell(ADOPTED);
    }

    /// The agent ends. A keeper that somebody stopped would not see that, nor end itself.
    pub(super) fn wake(&self) {
        if let Some(keeper) = getppid() {
            // A keeper that is gone took the agent with it.
            let _ = kill_process(keeper, Signal::CONT);
        }
    }

    fn tell(&self, word: u64) {
        // A keeper that is gone took the agent with it.
        let _ = rustix::io::write(&self.0, &word.to_le_bytes());
    }
}

/// The word of an agent that was adopted. One that was orphaned sends the number of milliseconds that it is
/// to be let alone.
const ADOPTED: u64 = 0;

/// An agent that looks for another node above it ends by itself after once the detection time; a stopped one does not.
const ORPHAN_PATIENCE: u32 = 2;

/// The exit code of an agent that could not do its work.
pub(super) const FAILED: u8 = 125;
/// How long the agent has to end by itself once the one who started it is gone.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// The keeper's knowledge of the process that started the agent.
struct LifeLine {
    ended: Option<Instant>,
    /// Until when the agent may look for another node above it, if it does.
    orphaned_until: Option<Instant>,
    is_adopted: bool,
}

impl LifeLine {
    /// When the agent has to be gone.
    fn deadline(&self) -> Option<Instant> {
        let ended = self.ended.filter(|_| !self.is_adopted)?;
        Some(
            self.orphaned_until
                .map_or(ended + PATIENCE, |until| until.max(ended + PATIENCE)),
        )
    }
}

/// Returns true if the process that started this agent is gone, or wants the agent to end.
pub(super) fn has_life_line_ended() -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::RDHUP)];
    // What cannot be looked at has not said so.
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// Parts this process in two. The keeper waits until the agent is gone, however that happens. Then it kills
/// all processes that descend from the agent, and removes the shared memory that they leave behind: orphans
/// become children of the keeper, wherever they went and whatever they forgot. If standard input ends, the
/// line to the process that started the agent, the agent is killed unless it ends by itself: also if it is
/// stopped, or its host cut off from the one above. An agent that says that it looks for another node above
/// it has the time that it says, and then, if it found one, needs the line no more. A keeper that somebody
/// stopped goes on when the process that started it dies, and when its agent ends.
///
/// # Safety
/// To be called while the process has one thread.
pub(super) unsafe fn fork() -> io::Result<Part> {
    descendants::adopt_orphans();
    let (its_line, line) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
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
            Ok(Part::Agent(KeeperLine(line)))
        }
        pid => {
            let agent = Pid::from_raw(pid).ok_or_else(|| io::Error::other("fork told no number"))?;
            drop(line);
            set_parent_process_death_signal(Some(Signal::CONT))?;
            hand_on_signals(agent);
            keep(agent, Some(its_line)).map(Part::Keeper)
        }
    }
}

/// Has the agent hear of the signals that are for the job: batch systems send them to the process that they
/// have started, which is its keeper.
fn hand_on_signals(agent: Pid) {
    static AGENT: AtomicI32 = AtomicI32::new(0);
    extern "C" fn hand_on(signal: libc::c_int) {
        // SAFETY: a call of the system that signal handlers may make (signal-safety(7)), for a child that is not
        // reaped before its keeper ends.
        unsafe {
            let before = *libc::__errno_location();
            libc::kill(AGENT.load(Ordering::Relaxed), signal);
            *libc::__errno_location() = before;
        }
    }
    AGENT.store(agent.as_raw_nonzero().get(), Ordering::Relaxed);
    for signal in [libc::SIGUSR1, libc::SIGTERM] {
        // SAFETY: an action of zeros has no flags and an empty mask; the handler does only what handlers may do.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = hand_on;
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

fn keep(agent: Pid, mut words: Option<OwnedFd>) -> io::Result<u8> {
    let pidfd = pidfd_open(agent, PidfdFlags::empty())?;
    let mut life_line = LifeLine {
        ended: None,
        orphaned_until: None,
        is_adopted: false,
    };
    let mut is_settled = false;
    let mut killed = Killed::new();
    loop {
        let stdin = rustix::stdio::stdin();
        let mut polled = vec![PollFd::new(&pidfd, PollFlags::IN)];
        if let Some(words) = &words {
            polled.push(PollFd::new(words, PollFlags::IN));
        }
        if life_line.ended.is_none() {
            // Only its end: what comes before that is the agent's.
            polled.push(PollFd::from_borrowed_fd(stdin, PollFlags::RDHUP));
        }
        let deadline = life_line.deadline();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
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
                life_line.ended = Some(Instant::now());
                life_line.orphaned_until = None;
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if life_line.ended.is_none() && polled.last().is_some_and(|polled| !polled.revents().is_empty()) {
            life_line.ended = Some(Instant::now());
        }
        words = words.filter(|words| listen(words, &mut life_line));
        if let Some((_, status)) = waitpid(Some(agent), WaitOptions::NOHANG)? {
            descendants::kill_all(|pid, status| {
                if status.exit_status() != Some(0) {
                    killed.add(pid.as_raw_nonzero().get());
                }
            });
            // Of ranks that were gone before their agent it has done that, or nobody knows any more.
            killed.remove_leftovers();
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = signal.or(status.exit_status()).unwrap_or(i32::from(FAILED));
            return Ok(u8::try_from(code).unwrap_or(FAILED));
        }
    }
}

/// Takes what the agent says. Returns whether it may say more.
fn listen(words: impl AsFd, life_line: &mut LifeLine) -> bool {
    let mut word = [0; 8];
    loop {
        match rustix::io::read(&words, &mut word) {
            // Short words are not written to pipes in pieces.
            Ok(1..) => match u64::from_le_bytes(word) {
                ADOPTED => life_line.is_adopted = true,
                patience => {
                    life_line.orphaned_until = Instant::now().checked_add(Duration::from_millis(patience));
                }
            },
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return true,
            Ok(0) | Err(_) => return false,
        }
    }
}
