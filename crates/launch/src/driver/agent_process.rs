//! How an agent begins, with unsafe code for what may be done only then.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_launch_core::protocol::{BOOTSTRAP_SIZE_MAX, Plan};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{
    agent::{Agent, Preparation},
    branch::Position,
    keeper::{self, FAILED, Part},
    launch_error::with_causes,
    process::Slots,
};
use crate::driver::bootstrap::Bootstrap;

/// The main function of `ropewalk agent`: the agent of one host, or the PMIx server beside it, which a
/// [`Launcher`](crate::Launcher) or another agent starts. Nobody starts it by hand.
///
/// To be called first of all in a program's `main`: it closes every descriptor that the process inherited besides its
/// standard streams, and forks.
pub fn agent_main() -> ExitCode {
    if let Some(helper) = std::env::var_os(HELPER_VARIABLE) {
        let words = helper.as_bytes().split(|&byte| byte == b'\n');
        return ropewalk_pmix::helper_main(words.map(|word| OsStr::from_bytes(word).to_owned()));
    }
    // SAFETY: this is the first that the program does, as the contract has it: nothing is open that somebody owns, and
    // there is one thread.
    ExitCode::from(unsafe { serve(None) })
}

/// The variable of a PMIx server: the folder for its files, and the files that libpmix may be in, with line ends
/// between them.
pub(super) const HELPER_VARIABLE: &str = "ROPEWALK_PMIX_HELPER";

/// Does what the node above says, and returns the exit code. If this agent's position is not `known`, the
/// process at the other end of standard input tells it.
///
/// # Safety
/// To be called while the process has one thread, and nobody owns a descriptor from 3 on.
pub(super) unsafe fn serve(known: Option<Position>) -> u8 {
    // SAFETY: as the caller has promised.
    unsafe { run(known) }.unwrap_or_else(|error| {
        eprintln!("ropewalk agent: {}", with_causes(&error));
        FAILED
    })
}

/// # Safety
/// As for [`serve`].
unsafe fn run(known: Option<Position>) -> io::Result<u8> {
    // First of all: a fork of the launcher has the other end of its own life line until then.
    // SAFETY: as the caller has promised.
    let slots = unsafe { Slots::reserve() }?;
    // SAFETY: as the caller has promised.
    let keeper = match unsafe { keeper::fork() }? {
        Part::Agent(keeper) => keeper,
        Part::Keeper(code) => return Ok(code),
    };
    let preparation = Preparation::make(slots, keeper)?;
    let position = known.map_or_else(read_position, Ok)?;
    Agent::run(position, preparation)
}

fn read_position() -> io::Result<Position> {
    let bootstrap = read_bootstrap().map_err(|error| {
        let hint = "an agent is started by a launcher, which tells it by its standard input what to do, and not by \
            hand";
        io::Error::other(format!("{error}; {hint}"))
    })?;
    let plan: Plan = postcard::from_bytes(&bootstrap.plan).map_err(io::Error::other)?;
    Ok(Position::new(bootstrap, Arc::new(plan)))
}

/// How long the one who started this process may take to say why.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(10);

fn read_bootstrap() -> io::Result<Bootstrap> {
    let deadline = Instant::now() + BOOTSTRAP_TIMEOUT;
    let mut length = [0; 4];
    read_exactly(&mut length, deadline)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > BOOTSTRAP_SIZE_MAX {
        return Err(io::Error::other(format!(
            "a description of {length} bytes is too long"
        )));
    }
    let mut frame = vec![0; length];
    read_exactly(&mut frame, deadline)?;
    postcard::from_bytes(&frame).map_err(io::Error::other)
}

fn read_exactly(mut buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let stdin = rustix::stdio::stdin();
    while !buffer.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(
            &mut [PollFd::from_borrowed_fd(stdin, PollFlags::IN)],
            timeout.as_ref(),
        ) {
            Ok(0) => return Err(io::Error::other("nobody said what to do")),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        match rustix::io::read(stdin, &mut *buffer) {
            Ok(0) => return Err(io::Error::other("standard input ended")),
            Ok(length) => buffer = &mut buffer[length..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
