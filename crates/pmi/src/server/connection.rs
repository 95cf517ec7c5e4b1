//! One process's connection.

use std::collections::{BTreeSet, VecDeque};

use bstr::BString;

use super::{GroupId, Peer, Process, waiter::Waiter};
use crate::{Decoded, MessageBuffer, Request, SpawnBlocks};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) buffer: MessageBuffer,
    /// Who speaks on it, once that is known.
    pub(super) process: Option<Process>,
    /// The group of the process.
    pub(super) group: GroupId,
    /// A process that we greeted and that did not answer yet.
    pub(super) is_greeted: bool,
    pub(super) spawn: SpawnBlocks,
    /// The key-value spaces of other jobs that the process may get from.
    pub(super) connected: BTreeSet<BString>,
    /// Requests without a thread that came while another waits: they are answered in order.
    pub(super) held: VecDeque<Decoded<Request>>,
    /// A request without a thread waits.
    is_blocked: bool,
    /// How many requests wait.
    waiting: usize,
}

impl Connection {
    pub(super) fn new(peer: Peer) -> Self {
        let (process, group) = match peer {
            Peer::Process(process) => (Some(process), process.group),
            Peer::Port(group) => (None, group),
            Peer::Singleton(group) => (Some(Process { group, rank: 0 }), group),
        };
        Self {
            buffer: MessageBuffer::default(),
            process,
            group,
            is_greeted: false,
            spawn: SpawnBlocks::default(),
            connected: BTreeSet::new(),
            held: VecDeque::new(),
            is_blocked: false,
            waiting: 0,
        }
    }

    /// Returns true if a request without a thread has to wait for its turn.
    pub(super) fn is_busy(&self) -> bool {
        self.is_blocked || !self.held.is_empty()
    }

    /// Returns true if a held request can be served.
    pub(super) fn is_resumable(&self) -> bool {
        !self.is_blocked && !self.held.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting + self.held.len() >= super::Server::REQUESTS_MAX
    }

    /// A request waits from now on.
    pub(super) fn park(&mut self, waiter: &Waiter) {
        self.waiting += 1;
        self.is_blocked |= waiter.thread.is_none();
    }

    /// A request is answered.
    pub(super) fn release(&mut self, waiter: &Waiter) {
        self.waiting -= 1;
        self.is_blocked &= waiter.thread.is_some();
    }
}
