//! How the death of a process on this host is seen, even before the kernel has taken its memory and closed its
//! sockets: with much memory that takes tens of milliseconds.
//!
//! Each process holds a robust mutex in a page that its peers map. The first thing that the kernel does when a thread
//! ends is to mark the mutexes that it held (see get_robust_list(2)). But the thread may have ended alone: only
//! `/proc` tells, and until it does, nobody is taken for dead.

use std::{
    io,
    num::NonZeroU32,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use self::page::PeerPage;
pub(crate) use self::page::own_page;

mod page;

/// A process at the other end of a connection.
#[derive(Debug)]
pub(super) struct PeerLiveness {
    page: PeerPage,
    pid: NonZeroU32,
    suspicion: Suspicion,
}

/// The verdict so far on a process whose thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    None,
    /// The process is looked at again and again: its threads die one after another.
    Suspected {
        until: Instant,
        next_look: Instant,
        pause: Duration,
    },
    /// It lives, and the page tells nothing any more.
    Cleared,
}

/// The state of a process, as `/proc` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Alive,
    Dead,
}

impl PeerLiveness {
    /// Of the process `pid` (as this process sees it), which handed out the page.
    ///
    /// Returns nothing if this process cannot see it in `/proc`.
    ///
    /// # Errors
    /// If the page cannot be mapped.
    pub(super) fn new(page: BorrowedFd<'_>, pid: NonZeroU32) -> io::Result<Option<Self>> {
        if look_at(pid) == Process::Dead {
            return Ok(None);
        }
        Ok(Some(Self {
            page: PeerPage::map(page)?,
            pid,
            suspicion: Suspicion::None,
        }))
    }

    /// Returns true if the process is certain to be dead. Costs the reading of one word, as long as it lives.
    #[inline]
    pub(super) fn is_dead(&mut self, now: Instant) -> bool {
        self.page.owner_died() && self.is_process_dead(now)
    }

    #[cold]
    fn is_process_dead(&mut self, now: Instant) -> bool {
        let pid = self.pid;
        self.suspicion.is_confirmed(now, || look_at(pid))
    }
}

impl Suspicion {
    /// How long the process is looked at before its thread is believed to have ended alone. Threads of one that was
    /// killed end when they next run.
    const PERIOD: Duration = Duration::from_millis(200);
    const FIRST_PAUSE: Duration = Duration::from_micros(20);

    fn is_confirmed(&mut self, now: Instant, look: impl FnOnce() -> Process) -> bool {
        let (until, pause) = match *self {
            Self::Cleared => return false,
            Self::Suspected { next_look, .. } if now < next_look => return false,
            Self::Suspected { until, pause, .. } => (until, pause),
            Self::None => (now + Self::PERIOD, Self::FIRST_PAUSE),
        };
        if look() == Process::Dead {
            return true;
        }
        *self = if now >= until {
            Self::Cleared
        } else {
            Self::Suspected {
                until,
                next_look: now + pause,
                pause: 2 * pause,
            }
        };
        false
    }
}

fn look_at(pid: NonZeroU32) -> Process {
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => state(&stat),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Process::Dead,
        // ESRCH: it went while we were reading.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Process::Dead,
        Err(_) => Process::Alive,
    }
}

/// The state that a line of `/proc/PID/stat` tells, see proc_pid_stat(5).
fn state(stat: &[u8]) -> Process {
    const EXITING: u32 = 0x4;
    // The name before it may have spaces and parentheses.
    let after_name = stat.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 1);
    let text = String::from_utf8_lossy(&stat[after_name..]);
    let mut fields = text.split_ascii_whitespace();
    let is_gone = matches!(fields.next(), Some("Z" | "X" | "x"));
    let flags = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    if is_gone || flags & EXITING != 0 {
        Process::Dead
    } else {
        Process::Alive
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::fd::AsFd,
        process::{Command, Stdio},
    };

    use super::*;

    fn own_pid() -> NonZeroU32 {
        NonZeroU32::new(std::process::id()).unwrap()
    }

    /// A thread may end and its process live on: it is not taken for dead, and the next peer is given a page that a
    /// thread holds again.
    #[test]
    fn the_end_of_a_thread_is_no_death() {
        let page = std::thread::spawn(|| own_page().unwrap()).join().unwrap();
        let mut liveness = PeerLiveness::new(page.as_fd(), own_pid()).unwrap().unwrap();
        // Another test's thread may hold the page that was handed out.
        let start = Instant::now();
        for step in 0..400 {
            assert!(!liveness.is_dead(start + Duration::from_millis(step)));
        }
        let page = own_page().unwrap();
        let liveness = PeerLiveness::new(page.as_fd(), own_pid()).unwrap().unwrap();
        assert!(!liveness.page.owner_died());
    }

    /// However many threads make endpoints one after the other, their process has one page, and one descriptor of it.
    #[test]
    fn threads_that_end_leave_no_pages() {
        let page = || {
            let page = std::thread::spawn(|| own_page().unwrap()).join().unwrap();
            rustix::fs::fstat(page).unwrap().st_ino
        };
        let first = page();
        for _ in 0..200 {
            assert_eq!(page(), first);
        }
        let mut liveness = PeerLiveness::new(own_page().unwrap().as_fd(), own_pid())
            .unwrap()
            .unwrap();
        assert!(!liveness.page.owner_died() && !liveness.is_dead(Instant::now()));
    }

    /// Somebody whose thread has ended is looked at for a while, at growing pauses, and then left alone.
    #[test]
    fn suspicion_ends() {
        let start = Instant::now();
        let mut suspicion = Suspicion::None;
        let mut looks = 0;
        for microseconds in 0..1_000_000 {
            let now = start + Duration::from_micros(microseconds);
            assert!(!suspicion.is_confirmed(now, || {
                looks += 1;
                Process::Alive
            }));
        }
        assert!((5..30).contains(&looks), "{looks} looks");
        assert_eq!(suspicion, Suspicion::Cleared);
    }

    /// A process whose last threads take their time to die is found dead at a later look.
    #[test]
    fn a_slow_death_is_seen() {
        let start = Instant::now();
        let mut suspicion = Suspicion::None;
        assert!(!suspicion.is_confirmed(start, || Process::Alive));
        assert!(suspicion.is_confirmed(start + Suspicion::PERIOD / 2, || Process::Dead));
    }

    /// The fields are found whatever the process calls itself.
    #[test]
    fn the_state_of_a_process_is_read() {
        let line = |state: &str, flags: u32| format!("7 (a) Z (b) {state} 1 7 7 0 -1 {flags} 0 0 0\n");
        assert_eq!(state(line("R", 0x40_0000).as_bytes()), Process::Alive);
        assert_eq!(state(line("S", 0x40_0004).as_bytes()), Process::Dead);
        assert_eq!(state(line("Z", 0).as_bytes()), Process::Dead);
        assert_eq!(state(b""), Process::Alive);
    }

    /// A process that was killed is seen to be dead, whether it was waited for or not.
    #[test]
    fn a_killed_process_is_dead() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = NonZeroU32::new(child.id()).unwrap();
        assert_eq!(look_at(pid), Process::Alive);
        child.kill().unwrap();
        // Its end of the pipe is closed when it dies.
        let _ = child.stdout.take().unwrap().read(&mut [0]);
        assert_eq!(look_at(pid), Process::Dead);
        child.wait().unwrap();
        assert_eq!(look_at(pid), Process::Dead);
    }
}
