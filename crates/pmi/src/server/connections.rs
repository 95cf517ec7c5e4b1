//! The connections of a host's processes.

use std::collections::{BTreeMap, VecDeque};

use litemap::LiteMap;

use super::{ConnectionId, GroupId, Peer, Process, connection::Connection, waiter::Waiter};

/// The connections by number and by process.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// Those on which something was said; they are large.
    speaking: BTreeMap<ConnectionId, Box<Connection>>,
    /// Those of processes that said nothing yet: all of them at first, and small.
    silent: LiteMap<ConnectionId, Process>,
    by_process: LiteMap<Process, ConnectionId>,
    /// Connections on which a request may have become free to be served.
    resumable: VecDeque<ConnectionId>,
}

impl Connections {
    /// A process that has said nothing has this connection from now on, and no other.
    pub(super) fn open(&mut self, id: ConnectionId, process: Process) {
        self.seat(id, process);
        self.silent.insert(id, process);
    }

    /// Somebody who is still to say who it is has this connection.
    pub(super) fn open_unknown(&mut self, id: ConnectionId, connection: Connection) {
        self.speaking.insert(id, Box::new(connection));
    }

    /// The client of a connection has said who it is: this process, which has no other connection.
    pub(super) fn introduce(&mut self, id: ConnectionId, process: Process) {
        if let Some(mut connection) = self.speaking.remove(&id) {
            connection.process = Some(process);
            self.seat(id, process);
            self.speaking.insert(id, connection);
        }
    }

    /// A process that was greeted on a connection is known from now on.
    pub(super) fn answer_greeting(&mut self, id: ConnectionId, process: Process) {
        self.by_process.insert(process, id);
    }

    fn seat(&mut self, id: ConnectionId, process: Process) {
        if let Some(before) = self.by_process.insert(process, id) {
            self.speaking.remove(&before);
            self.silent.remove(&before);
        }
    }

    /// Something was said on a connection.
    pub(super) fn hear(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        if let Some(process) = self.silent.remove(&id) {
            let connection = Connection::new(Peer::Process(process));
            self.speaking.insert(id, Box::new(connection));
        }
        self.get_mut(id)
    }

    /// A connection on which something was said.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.speaking.get(&id).map(|connection| &**connection)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.speaking.get_mut(&id).map(|connection| &mut **connection)
    }

    /// The connection of a process.
    pub(super) fn of(&self, process: Process) -> Option<ConnectionId> {
        self.by_process.get(&process).copied()
    }

    /// Drops a connection; says whose it was.
    pub(super) fn forget(&mut self, id: ConnectionId) -> Option<Process> {
        let process = match self.silent.remove(&id) {
            Some(process) => process,
            None => self.speaking.remove(&id)?.process?,
        };
        if self.of(process) == Some(id) {
            self.by_process.remove(&process);
        }
        Some(process)
    }

    /// The processes of a group are gone.
    pub(super) fn forget_group(&mut self, id: GroupId) {
        self.by_process.retain(|process, _| process.group != id);
    }

    /// A request waits from now on.
    pub(super) fn park(&mut self, waiter: &Waiter) {
        if let Some(connection) = self.get_mut(waiter.connection) {
            connection.park(waiter);
        }
    }

    /// A request that waited is answered. Returns false if its connection is gone.
    pub(super) fn release(&mut self, waiter: &Waiter) -> bool {
        let Some(connection) = self.speaking.get_mut(&waiter.connection) else {
            return false;
        };
        connection.release(waiter);
        if connection.is_resumable() {
            self.resumable.push_back(waiter.connection);
        }
        true
    }

    /// The next connection on which requests may be served that were held back.
    pub(super) fn next_resumable(&mut self) -> Option<ConnectionId> {
        self.resumable.pop_front()
    }
}
