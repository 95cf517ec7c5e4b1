//! Reading the launcher's standard input, no faster than rank 0 takes it.

use std::{io, os::fd::OwnedFd, sync::mpsc, thread};

use ropewalk_launch_core::protocol::{Order, STDIN_WINDOW};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat, makedev},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::getpgrp,
    termios::tcgetpgrp,
};
use tokio::sync::mpsc::UnboundedSender;

/// A thread that reads standard input until it is dropped.
///
/// A thread of its own, because a file cannot be polled and a terminal must not be made non-blocking: it is
/// shared with the shell. It looks before it reads, so that once the job is over it takes nothing more.
pub(super) struct Input {
    credit: mpsc::Sender<usize>,
    _cancel: OwnedFd,
}

impl Input {
    /// Starts the thread. What it reads comes out as what agents are told.
    pub(super) fn start(orders: UnboundedSender<Order>) -> io::Result<Self> {
        let (cancelled, cancel) = pipe_with(PipeFlags::CLOEXEC)?;
        let (credit, credits) = mpsc::channel();
        thread::Builder::new()
            .name("ropewalk-stdin".to_owned())
            .spawn(move || {
                forward(&cancelled, &credits, &orders);
                let _ = orders.send(Order::StdinEnd);
            })?;
        Ok(Self {
            credit,
            _cancel: cancel,
        })
    }

    /// Rank 0 took this many bytes.
    pub(super) fn add_credit(&self, size: usize) {
        let _ = self.credit.send(size);
    }
}

/// Whether standard input is /dev/null, so that nothing can come from it and nobody need read it.
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

/// Whether standard input is a terminal that belongs to other processes at the moment.
fn is_in_background() -> bool {
    let foreground = tcgetpgrp(rustix::stdio::stdin());
    foreground.is_ok_and(|foreground| foreground != getpgrp())
}

fn forward(cancelled: &OwnedFd, credits: &mpsc::Receiver<usize>, orders: &UnboundedSender<Order>) {
    let stdin = rustix::stdio::stdin();
    let mut credit = STDIN_WINDOW;
    // Not written before it is read into: who starts with nothing to read needs none of it.
    let mut bytes: Vec<u8> = Vec::with_capacity(64 << 10);
    loop {
        while credit == 0 {
            match credits.recv() {
                Ok(size) => credit += size,
                Err(mpsc::RecvError) => return,
            }
        }
        credit += credits.try_iter().sum::<usize>();
        let mut polled = [
            PollFd::new(&stdin, PollFlags::IN),
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
                if orders.send(Order::Stdin(read.to_vec())).is_err() {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}
