//! The ranks of a host, as its agent reaches them.

use std::{collections::BTreeMap, io, mem, ops::Range};

use litemap::LiteMap;
use ropewalk_fabric::{FromAgent, HoldId};
use ropewalk_launch_core::protocol::Report;
use ropewalk_names::Rank;
use rustix::{
    event::epoll::EventFlags,
    process::{Signal, kill_process_group, pidfd_send_signal},
};

use super::{
    held_memory::HeldMemory,
    outputs::Outputs,
    pmi_port,
    poller::{Channel, Poller, Source},
    rank_io::{RankIo, Reading, Sockets},
};

/// The ranks by their number on this host, in the job, and by their processes.
pub(super) struct RankTable {
    /// By their number on this host; those that are gone have only what is still to be read.
    pub(super) ios: Vec<Option<RankIo>>,
    pub(super) indices: BTreeMap<Rank, usize>,
    pub(super) pids: LiteMap<i32, usize>,
    /// Memory of ranks that live; that of the dead is with the endpoint.
    pub(super) held: BTreeMap<(Rank, HoldId), HeldMemory>,
    /// The bytes that were read last.
    buffer: Vec<u8>,
}

/// So large that the allocator has it from the system: it is zero there, and takes no memory until something
/// is read into it.
const BUFFER_SIZE: usize = 256 << 10;
/// How many bytes of answers a rank may leave unread before it is not listened to: more than its requests can have
/// under way.
const ANSWERS_SIZE_MAX: usize = 4 << 20;

impl RankTable {
    /// These ranks, none of which runs yet.
    pub(super) fn new(ranks: &[Rank]) -> Self {
        let mut table = Self {
            ios: Vec::new(),
            indices: BTreeMap::new(),
            pids: LiteMap::new(),
            held: BTreeMap::new(),
            buffer: vec![0; BUFFER_SIZE],
        };
        table.add(ranks);
        table
    }

    /// Further ranks. Returns their numbers on this host.
    pub(super) fn add(&mut self, ranks: &[Rank]) -> Range<usize> {
        let first = self.ios.len();
        self.indices.extend(ranks.iter().copied().zip(first..));
        self.ios.resize_with(first + ranks.len(), || None);
        first..self.ios.len()
    }

    /// A rank runs: it is listened to from now on.
    ///
    /// # Errors
    ///
    /// If the system refuses to watch its sockets and pipes.
    pub(super) fn insert(
        &mut self,
        index: usize,
        io: RankIo,
        poller: &Poller,
        outputs: &Outputs,
    ) -> io::Result<()> {
        if let Some(sockets) = &io.sockets {
            poller.add(&sockets.pmi, Source::Rank(index, Channel::Pmi), EventFlags::IN)?;
            if io.foreign.is_none() {
                poller.add(&sockets.link, Source::Rank(index, Channel::Link), EventFlags::IN)?;
            }
        }
        outputs.watch(index, &io)?;
        if io.foreign.is_none() {
            self.pids.insert(io.pid.as_raw_nonzero().get(), index);
        }
        self.ios[index] = Some(io);
        Ok(())
    }

    pub(super) fn sockets(&mut self, index: usize) -> Option<(Rank, &mut Sockets)> {
        let io = self.ios.get_mut(index)?.as_mut()?;
        Some((io.rank, io.sockets.as_mut()?))
    }

    fn sockets_of(&mut self, rank: Rank) -> Option<(usize, &mut Sockets)> {
        let index = *self.indices.get(&rank)?;
        Some((index, self.sockets(index)?.1))
    }

    /// Takes the connection of a rank that was told a port. Returns true if the rank is connected.
    pub(super) fn accept_pmi(&mut self, index: usize, poller: &Poller) -> bool {
        let Some((_, sockets)) = self.sockets(index).filter(|(_, sockets)| sockets.listens) else {
            return true;
        };
        let Some(accepted) = pmi_port::accept(&sockets.pmi) else {
            return false;
        };
        poller.delete(&sockets.pmi);
        sockets.pmi = accepted;
        sockets.listens = false;
        let source = Source::Rank(index, Channel::Pmi);
        // One that cannot be watched is as one that was closed: the rank gets no answer, and fails.
        poller.add(&sockets.pmi, source, EventFlags::IN).is_ok()
    }

    /// Reads once what a rank says to PMI. Nothing if it is gone.
    pub(super) fn read_pmi(&mut self, index: usize) -> Option<(Rank, Reading<&[u8]>)> {
        let io = self.ios.get(index)?.as_ref()?;
        let sockets = io.sockets.as_ref()?;
        Some((io.rank, sockets.read_pmi(&mut self.buffer)))
    }

    /// Returns true if requests of a rank to PMI are taken: not from one that leaves too many answers unread.
    pub(super) fn takes_requests(&self, index: usize) -> bool {
        let io = self.ios.get(index).and_then(Option::as_ref);
        let sockets = io.and_then(|io| io.sockets.as_ref());
        sockets.is_some_and(|sockets| sockets.pmi_interest.contains(EventFlags::IN))
    }

    /// Reads once from a pipe that a rank writes to. Returns true if there was something to read.
    pub(super) fn read_output(
        &mut self,
        index: usize,
        channel: Channel,
        report: impl FnOnce(Report),
    ) -> bool {
        let Some(io) = self.ios.get_mut(index).and_then(Option::as_mut) else {
            return false;
        };
        let is_read = io.read_output(channel, &mut self.buffer, report);
        self.forget_if_over(index);
        is_read
    }

    /// Nothing more is read from one of a rank's sockets.
    pub(super) fn ignore(&mut self, index: usize, channel: Channel, poller: &Poller) {
        if let Some((_, sockets)) = self.sockets(index) {
            match channel {
                Channel::Pmi => poller.delete(&sockets.pmi),
                _ => poller.delete(&sockets.link),
            }
        }
    }

    /// Returns true if the process of a rank is not a child of this one.
    pub(super) fn is_foreign(&self, index: usize) -> bool {
        let io = self.ios.get(index).and_then(Option::as_ref);
        io.is_some_and(|io| io.foreign.is_some())
    }

    /// Sends a signal to a rank that lives, and to the processes that it started.
    pub(super) fn signal(&mut self, rank: Rank, signal: i32) {
        let index = self.indices.get(&rank);
        let io = index.and_then(|&index| self.ios[index].as_mut());
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

    /// Sends a packet over a rank's link, however slowly the rank reads. A rank that asks again and again without
    /// reading gets no more answers.
    pub(super) fn tell(&mut self, rank: Rank, packet: FromAgent, is_answer: bool, poller: &Poller) {
        if let Some((index, sockets)) = self.sockets_of(rank)
            && !(sockets.is_left && is_answer)
        {
            sockets.queue(packet);
            // Else it is sent when the rank has read what was before it.
            if !sockets.is_left {
                self.send_link(index, poller);
            }
        }
    }

    /// Answers a rank's request to PMI.
    pub(super) fn answer(&mut self, rank: Rank, bytes: &[u8], poller: &Poller) {
        if let Some((index, sockets)) = self.sockets_of(rank) {
            sockets.answer(bytes);
            self.send_answers(index, poller);
        }
    }

    /// Ends a rank's connection to PMI once the rank has read its answers.
    pub(super) fn close_pmi(&mut self, rank: Rank, poller: &Poller) {
        if let Some((index, sockets)) = self.sockets_of(rank) {
            sockets.ends_after_answers = true;
            self.send_answers(index, poller);
        }
    }

    /// Sends what a rank must hear, however slowly it reads.
    pub(super) fn send_link(&mut self, index: usize, poller: &Poller) {
        let Some((_, sockets)) = self.sockets(index) else {
            return;
        };
        let is_left = sockets.send_unsent();
        if is_left != mem::replace(&mut sockets.is_left, is_left) {
            let out = match is_left {
                true => EventFlags::OUT,
                false => EventFlags::empty(),
            };
            // One that is not watched any more has closed its end.
            let source = Source::Rank(index, Channel::Link);
            let _ = poller.modify(&sockets.link, source, EventFlags::IN | out);
        }
    }

    /// Answers a rank's requests, however slowly it reads. From one that leaves too much unread, no more requests are
    /// taken until it has read.
    pub(super) fn send_answers(&mut self, index: usize, poller: &Poller) {
        let Some((_, sockets)) = self.sockets(index) else {
            return;
        };
        let flags = match sockets.send_answers() {
            0 => EventFlags::IN,
            1..=ANSWERS_SIZE_MAX => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::OUT,
        };
        if flags != mem::replace(&mut sockets.pmi_interest, flags) {
            // One that is not watched any more has closed its end.
            let _ = poller.modify(&sockets.pmi, Source::Rank(index, Channel::Pmi), flags);
        }
    }

    /// Reads and reports what the process before has written last, when a rank gets another.
    pub(super) fn retire(&mut self, index: usize, report: impl FnMut(Report)) {
        if let Some(io) = self.ios.get_mut(index).and_then(Option::take) {
            io.finish_outputs(&mut self.buffer, report);
        }
    }

    /// Closes pipes that somebody holds open who is not one of us; what came last from them is reported.
    pub(super) fn give_up_outputs(&mut self, mut report: impl FnMut(Report)) {
        for index in 0..self.ios.len() {
            if let Some(io) = &mut self.ios[index] {
                for channel in Channel::OUTPUTS {
                    io.give_up_output(channel, &mut report);
                }
            }
            self.forget_if_over(index);
        }
    }

    /// A rank that is gone, and all of whose output was read, is forgotten.
    pub(super) fn forget_if_over(&mut self, index: usize) {
        let is_over = |io: &RankIo| io.sockets.is_none() && io.outputs.iter().all(Option::is_none);
        if self.ios[index].as_ref().is_some_and(is_over) {
            self.ios[index] = None;
        }
    }
}
