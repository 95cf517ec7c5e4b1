//! The actions that an agent performs for its mind.

use bytes::Bytes;
use ropewalk_launch_core::{
    host_agent::{Action, ToRank},
    protocol::Report,
};
use rustix::{
    event::epoll::EventFlags,
    process::{Signal, kill_process_group, pidfd_send_signal},
};

use super::{
    Agent, SWEEP_MAX, Sweep,
    poller::{Channel, Source},
    rank_link::to_rank,
};

/// How many bytes of answers a rank may leave unread before it is not listened to: more than its requests can have
/// under way.
const ANSWERS_SIZE_MAX: usize = 4 << 20;

impl Agent {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::ClosePmi(rank) => {
                if let Some((index, sockets)) = self.ranks.sockets_of(rank) {
                    sockets.ends_after_answers = true;
                    self.send_answers(index);
                }
            }
            Action::Expose(rank, held) => {
                let memory = self.ranks.held.remove(&(rank, held.id));
                let memory = memory.expect("the mind exposes only what it said to keep, and once");
                let bytes = memory.into_bytes().unwrap_or_else(|error| {
                    // Whoever wants to read it is told that it is not there.
                    let text = format!("what it left cannot be read: {error}");
                    self.branch.report(Report::Notice { rank, text });
                    Bytes::new()
                });
                let handle = self.branch.endpoint().expose(bytes);
                self.mind.handle_exposed(rank, held, handle);
            }
            Action::Withdraw(handle) => drop(self.branch.endpoint().withdraw(&handle)),
            Action::Fence(gone) => self.branch.endpoint().fence(gone),
            Action::Forget(rank, id) => drop(self.ranks.held.remove(&(rank, id))),
            Action::Report(report) => self.branch.report(report),
            Action::SendChild(node, down) => self.branch.send_pmi(node, down),
            Action::SendLink(rank, message) => {
                let is_answer = matches!(message, ToRank::Welcome(_) | ToRank::Taken);
                let packet = to_rank(message, self.branch.key());
                if let Some((index, sockets)) = self.ranks.sockets_of(rank) {
                    // Who asks again and again, and does not read the answers, gets no more.
                    if sockets.is_left && is_answer {
                        return;
                    }
                    sockets.queue(packet);
                    // Else it is sent when the rank has read what was before it.
                    if !sockets.is_left {
                        self.send_link(index);
                    }
                }
            }
            Action::SendPmi(rank, bytes) => {
                if let Some((index, sockets)) = self.ranks.sockets_of(rank) {
                    sockets.answer(&bytes);
                    self.send_answers(index);
                }
            }
            Action::Signal(rank, signal) => {
                let index = self.ranks.indices.get(&rank);
                let io = index.and_then(|&index| self.ranks.ios[index].as_mut());
                if let (Some(io), Some(signal)) = (io, Signal::from_named_raw(signal))
                    && io.sockets.is_some()
                {
                    io.was_killed |= signal == Signal::KILL;
                    // It is gone, or its group is with its leader, if nobody has been told yet.
                    let _ = match &io.foreign {
                        Some(pidfd) => pidfd_send_signal(pidfd, signal),
                        None => kill_process_group(io.pid, signal),
                    };
                }
            }
            Action::Sweep => {
                let now = std::time::Instant::now();
                self.end_helper(now);
                self.ends.sweep = Sweep::Killing {
                    next: now,
                    until: now + SWEEP_MAX,
                };
            }
        }
    }

    /// Sends what a rank must hear, however slowly it reads.
    pub(super) fn send_link(&mut self, index: usize) {
        let Some((_, sockets)) = self.ranks.sockets(index) else {
            return;
        };
        let is_left = sockets.send_unsent();
        if is_left != std::mem::replace(&mut sockets.is_left, is_left) {
            let out = if is_left {
                EventFlags::OUT
            } else {
                EventFlags::empty()
            };
            self.set_interest(index, Channel::Link, EventFlags::IN | out);
        }
    }

    /// Answers a rank's requests, however slowly it reads. From one that leaves too much unread, no more requests are
    /// taken until it has read.
    pub(super) fn send_answers(&mut self, index: usize) {
        let Some((_, sockets)) = self.ranks.sockets(index) else {
            return;
        };
        let flags = match sockets.send_answers() {
            0 => EventFlags::IN,
            1..=ANSWERS_SIZE_MAX => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::OUT,
        };
        if flags != std::mem::replace(&mut sockets.pmi_interest, flags) {
            self.set_interest(index, Channel::Pmi, flags);
        }
    }

    /// Writes what ranks take now of their input, and tells how much that was.
    pub(super) fn write_inputs(&mut self) {
        for index in 0..self.inputs.len() {
            self.write_input(index);
        }
        self.tell_taken();
    }

    pub(super) fn write_input(&mut self, index: usize) {
        let has_pipe = self.inputs.has(index) && self.inputs.pipe(index).is_some();
        if !has_pipe {
            return;
        }
        let is_left = self.inputs.write(index);
        if let Some(pipe) = self.inputs.pipe(index) {
            let source = Source::Rank(index, Channel::Stdin);
            // A pipe without a reader is told without being asked for, and again and again: not from here on.
            self.pollers.all.delete(pipe);
            if is_left {
                let _ = self.pollers.all.add(pipe, source, EventFlags::OUT);
            }
        }
        self.tell_taken();
    }

    /// Tells how much of the input was taken. Those that take no more count no more.
    pub(super) fn tell_taken(&mut self) {
        if let Some(taken) = self.inputs.taken() {
            self.branch.report(Report::StdinTaken(taken));
        }
    }

    /// Nothing more is read from one of a rank's sockets.
    pub(super) fn ignore(&mut self, index: usize, channel: Channel) {
        if let Some(io) = self.ranks.ios.get(index).and_then(Option::as_ref)
            && let Some(sockets) = &io.sockets
        {
            match channel {
                Channel::Pmi => self.pollers.all.delete(&sockets.pmi),
                _ => self.pollers.all.delete(&sockets.link),
            }
        }
    }

    fn set_interest(&mut self, index: usize, channel: Channel, flags: EventFlags) {
        if let Some(io) = self.ranks.ios.get(index).and_then(Option::as_ref)
            && let Some(sockets) = &io.sockets
        {
            let source = Source::Rank(index, channel);
            // One that is not watched any more has closed its end.
            let _ = match channel {
                Channel::Pmi => self.pollers.all.modify(&sockets.pmi, source, flags),
                _ => self.pollers.all.modify(&sockets.link, source, flags),
            };
        }
    }
}
