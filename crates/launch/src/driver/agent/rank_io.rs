//! The agent's ends of the sockets and pipes of a rank.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use ropewalk_fabric::{AgentLink, AgentLinkError, FromAgent, ToAgent, memfd::HeldMemfd};
use ropewalk_launch_core::{WholeLines, protocol::Report};
use ropewalk_names::Rank;
use rustix::{
    event::epoll,
    io::{Errno, read},
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
    process::Pid,
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

use super::poller::Channel;

/// A rank that was started.
pub(super) struct RankIo {
    pub(super) rank: Rank,
    pub(super) pid: Pid,
    /// If it was not started here.
    pub(super) foreign: Option<OwnedFd>,
    /// This agent has sent it a SIGKILL.
    pub(super) was_killed: bool,
    /// Until it is gone.
    pub(super) sockets: Option<Sockets>,
    /// Standard output and standard error, until they end.
    pub(super) outputs: [Option<Output>; 2],
}

/// How the agent and a rank that lives speak.
pub(super) struct Sockets {
    pub(super) pmi: OwnedFd,
    /// [`pmi`](Self::pmi) is a listener, to which the rank has not connected yet.
    pub(super) listens: bool,
    /// The events that the agent waits for on the PMI socket.
    pub(super) pmi_interest: epoll::EventFlags,
    /// The connection ends after them.
    pub(super) ends_after_answers: bool,
    pub(super) link: AgentLink,
    /// The rank does not read fast enough: it is waited for.
    pub(super) is_left: bool,
    /// Elsewhere, since there are a thousand ranks and most have nothing to hear.
    unsent: Option<Box<Unsent>>,
}

/// The answers and messages that a rank gets once it reads.
#[derive(Default)]
struct Unsent {
    /// To its PMI requests.
    answers: Vec<u8>,
    messages: VecDeque<FromAgent>,
}

/// A pipe or a pseudo-terminal that a rank writes to.
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

/// How much is read of what a process that is gone wrote: pipes hold no more, unless somebody goes on writing.
const READS_MAX: usize = 64;

impl RankIo {
    /// Reads once from a pipe, and reports the lines that are whole; at the end of the stream, the rest. Returns true
    /// if there was something to read, if only the end.
    pub(super) fn read_output(
        &mut self,
        channel: Channel,
        buffer: &mut [u8],
        report: impl FnOnce(Report),
    ) -> bool {
        let Some(output) = &mut self.outputs[channel.output_index()] else {
            return false;
        };
        match output.read(buffer) {
            Reading::Drained => return false,
            Reading::Some(Some(lines)) => report(self.output_report(channel, lines)),
            Reading::Some(None) => {}
            Reading::Over => self.give_up_output(channel, report),
        }
        true
    }

    /// Closes a pipe, and reports the rest of what came from it.
    pub(super) fn give_up_output(&mut self, channel: Channel, report: impl FnOnce(Report)) {
        let output = self.outputs[channel.output_index()].take();
        if let Some(lines) = output.and_then(|output| output.lines.finish()) {
            report(self.output_report(channel, lines));
        }
    }

    /// Reads and reports what a process that is gone has written last.
    pub(super) fn finish_outputs(mut self, buffer: &mut [u8], mut report: impl FnMut(Report)) {
        for channel in Channel::OUTPUTS {
            for _ in 0..READS_MAX {
                if !self.read_output(channel, buffer, &mut report) {
                    break;
                }
            }
            self.give_up_output(channel, &mut report);
        }
    }

    fn output_report(&self, channel: Channel, lines: Vec<u8>) -> Report {
        let (rank, stream) = (self.rank, channel.stream());
        Report::Output { rank, stream, lines }
    }
}

impl Sockets {
    /// Of a rank that has said nothing and read all.
    pub(super) fn new(pmi: OwnedFd, link: AgentLink) -> Self {
        Self {
            pmi,
            listens: false,
            pmi_interest: epoll::EventFlags::IN,
            ends_after_answers: false,
            link,
            is_left: false,
            unsent: None,
        }
    }

    /// The rank shall hear this by its link.
    pub(super) fn queue(&mut self, message: FromAgent) {
        self.unsent.get_or_insert_default().messages.push_back(message);
    }

    /// Answers a request of the rank: at once, or as soon as it has read what was before.
    pub(super) fn answer(&mut self, bytes: &[u8]) {
        let is_first = self
            .unsent
            .as_ref()
            .is_none_or(|unsent| unsent.answers.is_empty());
        let sent = if is_first { send_pmi(&self.pmi, bytes) } else { 0 };
        if sent < bytes.len() {
            let unsent = self.unsent.get_or_insert_default();
            unsent.answers.extend_from_slice(&bytes[sent..]);
        }
    }

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

    /// Ends the link, so that a rank which goes on sending gets an error and does not wait for ever.
    pub(super) fn close_link(&self) {
        // A link that is closed already is what we want.
        let _ = shutdown(&self.link, Shutdown::Both);
    }

    pub(super) fn read_pmi<'a>(&self, buffer: &'a mut [u8]) -> Reading<&'a [u8]> {
        loop {
            match recv(&self.pmi, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((length, _)) if length > 0 => return Reading::Some(&buffer[..length]),
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
        let mut left = 0;
        if let Some(unsent) = &mut self.unsent {
            let sent = send_pmi(&self.pmi, &unsent.answers);
            unsent.answers.drain(..sent);
            left = unsent.answers.len();
        }
        self.forget_sent();
        if self.ends_after_answers && left == 0 {
            // A connection that is closed already is what we want.
            let _ = shutdown(&self.pmi, Shutdown::Both);
        }
        left
    }

    /// Sends what the rank takes now. Returns whether something is left.
    pub(super) fn send_unsent(&mut self) -> bool {
        let Some(unsent) = &mut self.unsent else {
            return false;
        };
        while let Some(message) = unsent.messages.front() {
            match self.link.send(message, None) {
                Ok(()) => drop(unsent.messages.pop_front()),
                Err(AgentLinkError::Full) => return true,
                // The rank has closed its end.
                Err(_) => unsent.messages.clear(),
            }
        }
        self.forget_sent();
        false
    }

    /// Gives memory back once the rank has heard all.
    fn forget_sent(&mut self) {
        self.unsent
            .take_if(|unsent| unsent.answers.is_empty() && unsent.messages.is_empty());
    }
}

/// Sends as much as the rank takes now. Returns how much that is; all, if it has closed its end.
fn send_pmi(pmi: &OwnedFd, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(pmi, &bytes[sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(length) => sent += length,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return bytes.len(),
        }
    }
    sent
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

/// The same with a pseudo-terminal, which changes nothing of what is written: (the end to read, the end to write). It
/// is nobody's controlling terminal. The end to read gets EIO once the other is closed and all is read.
pub(super) fn terminal_for_reading() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let reader = openpt(flags)?;
    unlockpt(&reader)?;
    let writer = ioctl_tiocgptpeer(&reader, flags)?;
    let mut modes = tcgetattr(&writer)?;
    modes.make_raw();
    tcsetattr(&writer, OptionalActions::Now, &modes)?;
    tcsetwinsize(&writer, WINDOW)?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((reader, writer))
}

/// The size of a terminal for which nothing else is said. Programs divide by it.
const WINDOW: Winsize = Winsize {
    ws_row: 24,
    ws_col: 80,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// A pipe whose end to write never waits: (the end to read, the end to write).
pub(super) fn pipe_for_writing() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&writer, true)?;
    Ok((reader, writer))
}
