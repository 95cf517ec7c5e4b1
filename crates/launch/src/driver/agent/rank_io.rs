//! What the agent has of a rank: its sockets and pipes.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use ropewalk_fabric::{AgentLink, AgentLinkError, FromAgent, ToAgent, memfd::HeldMemfd};
use ropewalk_group::Rank;
use rustix::{
    event::epoll,
    io::{Errno, read},
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
    process::Pid,
};

use crate::lines::WholeLines;

/// A rank that was started.
pub(super) struct RankIo {
    pub(super) rank: Rank,
    pub(super) pid: Pid,
    /// If it was not started here.
    pub(super) foreign: Option<OwnedFd>,
    /// Until it is gone.
    pub(super) sockets: Option<Sockets>,
    /// Standard output and standard error, until they end.
    pub(super) outputs: [Option<Output>; 2],
}

/// How the agent and a rank that lives speak.
pub(super) struct Sockets {
    pub(super) pmi: OwnedFd,
    /// Answers to its requests that it did not read yet.
    pub(super) answers: Vec<u8>,
    /// What is waited for on the PMI socket.
    pub(super) pmi_interest: epoll::EventFlags,
    /// The connection ends after them.
    pub(super) ends_after_answers: bool,
    pub(super) link: AgentLink,
    /// What the rank will hear once it reads.
    pub(super) unsent: VecDeque<FromAgent>,
    /// The rank does not read fast enough: it is waited for.
    pub(super) is_left: bool,
}

/// A pipe that a rank writes to.
pub(super) struct Output {
    pub(super) pipe: OwnedFd,
    pub(super) lines: WholeLines,
}

/// One look at a descriptor, which never waits.
pub(super) enum Reading<T> {
    Drained,
    Some(T),
    Over,
}

impl Sockets {
    pub(super) fn read_link(&self) -> Reading<Result<(ToAgent, Option<HeldMemfd>), AgentLinkError>> {
        match self.link.receive() {
            Ok(None) => Reading::Drained,
            Ok(Some((message, memfd))) => {
                let memory = memfd.and_then(|memfd| HeldMemfd::of(memfd).ok());
                Reading::Some(Ok((message, memory)))
            }
            Err(AgentLinkError::Closed) => Reading::Over,
            Err(error) => Reading::Some(Err(error)),
        }
    }

    pub(super) fn read_pmi(&self, buffer: &mut [u8]) -> Reading<usize> {
        loop {
            match recv(&self.pmi, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => return Reading::Some(length),
                // The rank died with unread answers: told once, before what it had sent.
                Err(Errno::CONNRESET | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Reading::Drained,
                Ok(_) | Err(_) => return Reading::Over,
            }
        }
    }

    /// Sends as much of the answers to the rank's requests as it takes now. Returns how many bytes are
    /// left.
    pub(super) fn send_answers(&mut self) -> usize {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut sent = 0;
        while sent < self.answers.len() {
            match send(&self.pmi, &self.answers[sent..], flags) {
                Ok(length) => sent += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The rank has closed its end.
                Err(_) => sent = self.answers.len(),
            }
        }
        self.answers.drain(..sent);
        if self.ends_after_answers && self.answers.is_empty() {
            // A connection that is closed already is what we want.
            let _ = shutdown(&self.pmi, Shutdown::Both);
        }
        self.answers.len()
    }

    /// Sends what the rank takes now. Returns whether something is left.
    pub(super) fn send_unsent(&mut self) -> bool {
        while let Some(message) = self.unsent.front() {
            match self.link.send(message, None) {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(AgentLinkError::Full) => return true,
                // The rank has closed its end.
                Err(_) => self.unsent.clear(),
            }
        }
        false
    }
}

impl Output {
    /// Reads once; returns whole lines, if there are some now. At the end of the stream, the rest.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Reading<Option<Vec<u8>>> {
        loop {
            match read(&self.pipe, &mut *buffer) {
                Ok(length @ 1..) => return Reading::Some(self.lines.push(&buffer[..length])),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Reading::Drained,
                Ok(_) | Err(_) => return Reading::Over,
            }
        }
    }
}

/// A pipe whose end that is kept never waits: (the end to read, the end to write).
pub(super) fn pipe_for_reading() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((reader, writer))
}

/// The same for the end to write: (the end to read, the end to write).
pub(super) fn pipe_for_writing() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    Ok((reader, writer))
}
