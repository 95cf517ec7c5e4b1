//! The process beside a launcher that ends the commands it leaves behind, with unsafe code to fork it off.
//!
//! A launcher that is killed ends no command any more. The commands that it started on other hosts' behalf
//! see that their standard input ends, but one that hangs before it reads that, as a client that never
//! connects, would stay for ever. An agent needs nothing like it: the keeper above it kills whatever descends
//! from it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr,
    rc::Rc,
    time::{Duration, Instant},
};

use rustix::{
    event::Timespec,
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open,
        pidfd_send_signal, setsid, test_kill_process_group, waitid, waitpid,
    },
    stdio::{dup2_stdin, stdin},
    thread::{nanosleep, set_name},
};

use super::{keeper, process::close_from};

/// A process that knows which commands run, and ends them within two seconds once this one is gone. If
/// dropped, it is gone at once and ends nothing.
pub(super) struct CommandKeeper {
    /// By its number somebody else might be struck, if a program that uses this crate reaps all its children.
    process: OwnedFd,
    /// Its end is that of this process.
    line: OwnedFd,
}

/// A command that is ended if this process is gone before this is dropped.
pub(super) struct Kept {
    keeper: Rc<CommandKeeper>,
    command: Pid,
}

impl CommandKeeper {
    /// Forks one off that can know so many commands at a time; it lets further ones alone.
    pub(super) fn fork(commands_max: usize) -> io::Result<Self> {
        let (its_line, line) = pipe_with(PipeFlags::CLOEXEC)?;
        // Nobody waits for one that was stopped.
        rustix::io::ioctl_fionbio(&line, true)?;
        // The child cannot allocate.
        let mut commands = Vec::with_capacity(commands_max);
        // SAFETY: another thread may hold any lock in the moment of the fork, for ever as seen by the child, which
        // therefore makes system calls only, ends in `_exit`, and runs no signal handler, since all signals are
        // blocked. The sets are made before their use, and the mask is this thread's own.
        let (result, error) = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            let result = libc::fork();
            if result == 0 {
                attend(its_line.as_fd(), &mut commands);
                libc::_exit(0);
            }
            let error = io::Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            (result, error)
        };
        let process = (result > 0)
            .then(|| Pid::from_raw(result))
            .flatten()
            .ok_or(error)?;
        // Failing that, the pipe ends here, and with it the process, which knows of no command.
        match pidfd_open(process, PidfdFlags::empty()) {
            Ok(process) => Ok(Self { process, line }),
            Err(errno) => {
                drop(line);
                let _ = waitpid(Some(process), WaitOptions::empty());
                Err(errno.into())
            }
        }
    }

    /// Has a command ended if this process is gone first, with those that it started itself: it leads a process group.
    pub(super) fn keep(self: &Rc<Self>, command: Pid) -> Kept {
        self.tell(command.as_raw_nonzero().get());
        Kept {
            keeper: self.clone(),
            command,
        }
    }

    /// A command's number, or that below zero of one that has ended.
    fn tell(&self, word: i32) {
        // One that does not listen, because it was stopped or killed, is done without: it is a second line of defence.
        let _ = rustix::io::write(&self.line, &word.to_ne_bytes());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.tell(-self.command.as_raw_nonzero().get());
    }
}

impl Drop for CommandKeeper {
    fn drop(&mut self) {
        // Also one that was stopped; gone already is what we want.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let process = WaitId::PidFd(self.process.as_fd());
        while matches!(waitid(process.clone(), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
    }
}

/// How long commands may take to end by themselves, as their standard input has ended too. A command that
/// does not hang may be the keeper of an agent, which is not to be killed over its work.
pub(super) const PATIENCE: Duration = keeper::PATIENCE.saturating_add(Duration::from_millis(250));
/// How long they may take after SIGTERM.
const TERMINATION: Duration = Duration::from_millis(500);
/// How often it is looked whether commands are still there.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// The work of the process beside the launcher. It makes system calls and nothing else: no allocation, no
/// lock, no panic.
fn attend(line: BorrowedFd<'_>, commands: &mut Vec<Pid>) {
    // It has the launcher's name otherwise, and who kills all of that name would kill it.
    let _ = set_name(c"command-keeper");
    // What the user's terminal sends is for the launcher.
    let is_alone = setsid().is_ok() && dup2_stdin(line).is_ok();
    // SAFETY: nothing in this process uses what is closed: the life lines of agents, which would not end, and this
    // process's own, among them.
    if !is_alone || unsafe { close_from(1, 0) }.is_err() {
        return;
    }
    if !listen(commands) {
        return;
    }
    for (patience, signal) in [(PATIENCE, Signal::TERM), (TERMINATION, Signal::KILL)] {
        let begun = Instant::now();
        loop {
            commands.retain(|&command| test_kill_process_group(command) != Err(Errno::SRCH));
            if commands.is_empty() {
                return;
            }
            if begun.elapsed() >= patience {
                break;
            }
            let _ = nanosleep(&LOOK);
        }
        for &command in commands.iter() {
            // Gone in the meantime is what we want.
            let _ = kill_process_group(command, signal);
        }
    }
}

/// Hears which commands run until the launcher is gone. Returns whether it is; otherwise nothing can be heard.
fn listen(commands: &mut Vec<Pid>) -> bool {
    let mut word = [0; 4];
    loop {
        match rustix::io::read(stdin(), &mut word) {
            Ok(0) => return true,
            // Short words are not written to pipes in pieces.
            Ok(1..) => match i32::from_ne_bytes(word) {
                number @ 1.. => {
                    let has_room = commands.len() < commands.capacity();
                    commands.extend(Pid::from_raw(number).filter(|_| has_room));
                }
                number => {
                    let ended = number.wrapping_neg();
                    commands.retain(|command| command.as_raw_nonzero().get() != ended);
                }
            },
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsRawFd};

    use rustix::{
        event::{PollFd, PollFlags, poll},
        process::{WaitIdStatus, pidfd_send_signal},
    };

    use super::{
        super::session::{self, Spawned},
        *,
    };

    const LIMIT: Duration = Duration::from_secs(20);

    fn spawn(script: &str) -> Spawned {
        session::spawn(&["sh", "-c", script].map(Into::into)).unwrap()
    }

    /// As if this process was gone, for the keeper.
    fn be_gone(keeper: &mut CommandKeeper) {
        keeper.line = File::open("/dev/null").unwrap().into();
    }

    fn await_end(process: impl AsFd) {
        let limit = Timespec::try_from(LIMIT).unwrap();
        let mut polled = [PollFd::new(&process, PollFlags::IN)];
        assert_eq!(poll(&mut polled, Some(&limit)), Ok(1), "the keeper does not end");
    }

    fn status(command: &Spawned, options: WaitIdOptions) -> Option<WaitIdStatus> {
        waitid(WaitId::Pid(command.pid), options | WaitIdOptions::EXITED).unwrap()
    }

    /// Waits until the script has said that it is ready.
    fn await_ready(command: &Spawned) {
        assert_eq!(rustix::io::read(&command.stderr, &mut [0; 1]), Ok(1));
    }

    /// Commands that are left behind are ended after a while, in which they might have ended by themselves.
    /// Those that do not want to end are ended too.
    #[test]
    fn commands_that_are_left_behind_are_ended() {
        let mut keeper = CommandKeeper::fork(2).unwrap();
        let commands = [
            "echo >&2; exec sleep 1000",
            "trap '' TERM; echo >&2; exec sleep 1000",
        ]
        .map(spawn);
        for command in &commands {
            keeper.tell(command.pid.as_raw_nonzero().get());
            await_ready(command);
        }
        let begun = Instant::now();
        be_gone(&mut keeper);
        for (command, signal) in commands.iter().zip([Signal::TERM, Signal::KILL]) {
            let status = status(command, WaitIdOptions::empty()).unwrap();
            assert_eq!(status.terminating_signal(), Some(signal.as_raw()));
            assert!(begun.elapsed() >= PATIENCE);
        }
    }

    /// Commands that the keeper was told to forget, or has no room for, are let alone.
    #[test]
    fn other_commands_are_let_alone() {
        let mut keeper = Rc::new(CommandKeeper::fork(1).unwrap());
        let [forgotten, kept, surplus] = ["exec sleep 1000"; 3].map(spawn);
        drop(keeper.keep(forgotten.pid));
        for command in [&kept, &surplus] {
            keeper.tell(command.pid.as_raw_nonzero().get());
        }
        be_gone(Rc::get_mut(&mut keeper).unwrap());
        assert!(status(&kept, WaitIdOptions::empty()).is_some());
        await_end(&keeper.process);
        for command in [forgotten, surplus] {
            assert!(status(&command, WaitIdOptions::NOHANG).is_none());
            kill_process_group(command.pid, Signal::KILL).unwrap();
            status(&command, WaitIdOptions::empty());
        }
    }

    /// A keeper has nothing of this process but its line, and ends at once if it knows of no command.
    #[test]
    fn a_keeper_holds_nothing_else() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut keeper = CommandKeeper::fork(1).unwrap();
        drop(writer);
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
        be_gone(&mut keeper);
        await_end(&keeper.process);
    }

    /// A keeper that was stopped holds nobody up, neither by a pipe that is full nor at the end, and leaves no process.
    #[test]
    fn a_stopped_keeper_holds_nobody_up() {
        let keeper = Rc::new(CommandKeeper::fork(1).unwrap());
        pidfd_send_signal(&keeper.process, Signal::STOP).unwrap();
        let process = keeper.process.try_clone().unwrap();
        let nobody = Pid::from_raw(i32::MAX).unwrap();
        for _ in 0..100_000 {
            drop(keeper.keep(nobody));
        }
        drop(keeper);
        let gone = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
        assert_eq!(gone.err(), Some(Errno::CHILD), "{}", process.as_raw_fd());
    }
}
