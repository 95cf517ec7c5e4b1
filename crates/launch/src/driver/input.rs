//! Reading the launcher's standard input, no faster than rank 0 takes it.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    thread,
};

use ropewalk_launch_core::protocol::{Order, STDIN_WINDOW};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::{FileType, fstat, makedev},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::getpgrp,
    termios::tcgetpgrp,
};
use tokio::sync::mpsc;

/// A thread that reads standard input until it is dropped.
///
/// A thread of its own, because a file cannot be polled and a terminal must not be made non-blocking: it is
/// shared with the shell. It looks before it reads, so that once the job is over it takes nothing more.
pub(super) struct Input {
    /// An eventfd, in which credit adds up until the thread takes it.
    credit: OwnedFd,
    _cancel: OwnedFd,
}

impl Input {
    /// How many pieces of input may wait to be sent; the thread reads no more then.
    pub(super) const ORDERS_MAX: usize = 16;

    /// Starts the thread. Its input comes out as orders to agents.
    pub(super) fn start(orders: mpsc::Sender<Order>) -> io::Result<Self> {
        let (cancelled, cancel) = pipe_with(PipeFlags::CLOEXEC)?;
        let credit = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let credits = credit.try_clone()?;
        thread::Builder::new()
            .name("ropewalk-stdin".to_owned())
            .spawn(move || {
                forward(&cancelled, &credits, &orders);
                let _ = orders.blocking_send(Order::StdinEnd);
            })?;
        Ok(Self {
            credit,
            _cancel: cancel,
        })
    }

    /// Rank 0 took this many bytes.
    pub(super) fn add_credit(&self, size: usize) {
        // The sum of all credit is far below the limit of an eventfd.
        let _ = rustix::io::write(&self.credit, &(size as u64).to_ne_bytes());
    }
}

/// Returns true if standard input is /dev/null, so that nothing can come from it and nobody need read it.
pub(super) fn is_empty() -> bool {
    let null = makedev(1, 3);
    fstat(rustix::stdio::stdin()).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice && found.st_rdev == null
    })
}

/// How often is looked whether this process is in the foreground.
const BACKGROUND_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Returns true if standard input is a terminal that belongs to other processes at the moment.
fn is_in_background() -> bool {
    let foreground = tcgetpgrp(rustix::stdio::stdin());
    foreground.is_ok_and(|foreground| foreground != getpgrp())
}

/// The credit that came since the last time.
fn take(credits: &OwnedFd) -> usize {
    let mut sum = [0; 8];
    match rustix::io::read(credits, &mut sum) {
        Ok(_) => u64::from_ne_bytes(sum) as usize,
        // There is none.
        Err(_) => 0,
    }
}

fn forward(cancelled: &OwnedFd, credits: &OwnedFd, orders: &mpsc::Sender<Order>) {
    let stdin = rustix::stdio::stdin();
    let mut credit = STDIN_WINDOW;
    // Not written before it is read into: who starts with nothing to read needs none of it.
    let mut bytes: Vec<u8> = Vec::with_capacity(64 << 10);
    loop {
        credit += take(credits);
        let awaited = match credit {
            0 => credits.as_fd(),
            _ => stdin.as_fd(),
        };
        let mut polled = [
            PollFd::from_borrowed_fd(awaited, PollFlags::IN),
            PollFd::new(cancelled, PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !polled[1].revents().is_empty() {
            return;
        }
        if credit == 0 {
            continue;
        }
        if is_in_background() {
            // To read would stop this process (SIGTTIN); it may be brought to the foreground any time.
            let cancelled = &mut [PollFd::new(cancelled, PollFlags::IN)];
            match poll(cancelled, Some(&BACKGROUND_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => return,
            }
        }
        let size = credit.min(bytes.capacity());
        match rustix::io::read(stdin, &mut bytes.spare_capacity_mut()[..size]) {
            Ok(([], _)) => return,
            Ok((read, _)) => {
                credit -= read.len();
                if orders.blocking_send(Order::Stdin(read.to_vec())).is_err() {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}
