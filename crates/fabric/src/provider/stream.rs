//! Byte streams: non-blocking TCP or UNIX sockets.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{event::epoll::EventFlags, io::Errno};

use self::{
    connection::{Connection, Handled, Surroundings},
    delayed::Delayed,
    sharing::Sharing,
    socket::Family,
};
use super::{
    Link, Memory, Provider, SharedMemory, Sleep, Work,
    shm::{OwnMemory, Transfers, own_page},
};
use crate::{
    Address, BindError, Buffer, EndpointOptions, Limits, Messages, OperationId, PeerDeath, PeerId,
    RegionHandle, SubmitError, Withdrawn,
    dense_map::{DenseKey, DenseMap},
    frame::HEADER_SIZE,
    handshake::Introduction,
    inbox::Around,
    outgoing_message::OutgoingMessage,
    peer_table::Activity,
    poller::{Poller, Ready},
    region_table::{Access, RegionMemory},
};

mod connection;
mod delayed;
mod driving;
mod incoming;
mod lifecycle;
mod send_queue;
mod sharing;
mod socket;
#[cfg(test)]
mod tests;
mod wire;

/// Endpoints at `tcp://IP:PORT`, reached by TCP or, on the same host, by UNIX sockets; and at `shm://NAME`
/// and `unix://NAME`, reached by UNIX sockets only.
///
/// A peer is reached over the first connection with it, whoever made it; if both made one at the same time
/// both stay, each side sending over its own. The loss of one is the death of the peer, and closes the other;
/// a second connection that a peer makes shows that it has lost the first.
pub(crate) struct StreamProvider {
    name: &'static str,
    family: Family,
    introduction: Introduction,
    limits: Limits,
    /// True if data of our own operations goes with checksums.
    bulk_checksum: bool,
    poller: Poller,
    table: Table,
    reception: Reception,
    /// When a connection that is not open yet is given up, or made anew.
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    /// Connections that have something to send and are not known to be blocked.
    sendable: BTreeSet<ConnectionId>,
    delayed: Delayed,
    /// How many operations of ours go in frames.
    transfers: usize,
    /// Operations that are done without the peer's help.
    direct: Transfers<PeerId, OperationId>,
    /// The memory that peers on this host reach without our help.
    own_memory: Option<OwnMemory>,
    attention: Attention,
    channels: Channels,
}

/// All connections, and with whom they are.
struct Table {
    connections: DenseMap<ConnectionId, Connection>,
    peers: DenseMap<PeerId, Connections>,
    /// How many connections there have been.
    made: u64,
}

/// How connections of others are let in.
struct Reception {
    listener: OwnedFd,
    /// Until when nobody is accepted, because the system is out of descriptors or there are too many strangers.
    paused: Option<Instant>,
    /// True if the pause ends as soon as there is room for another stranger.
    crowded: bool,
    /// Accepted connections whose other end has not named the job yet.
    strangers: BTreeSet<ConnectionId>,
    /// Accepted connections whose other end has named the job, but has not proven itself.
    greeted: BTreeSet<ConnectionId>,
}

/// Which sockets are seen to first.
#[derive(Default)]
struct Attention {
    /// Connections over which something came lately, to be read without asking the system which are ready.
    hot: Vec<ConnectionId>,
    /// When something came last.
    heard: Option<Instant>,
    /// Which of the ready connections is first.
    turn: usize,
}

/// Which channels are looked into.
#[derive(Default)]
struct Channels {
    /// The connections whose channels are looked into each time.
    active: Vec<ConnectionId>,
    /// Which of these messages are received from.
    receiving: usize,
    /// True if something was sent over a channel since the channels were looked into.
    unannounced: bool,
    /// When it was last looked for peers that died.
    looked: Option<Instant>,
    /// Which of the active ones is first.
    turn: usize,
}

/// How many there were before it, and then its index: the older one is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionId(u64);

impl DenseKey for ConnectionId {
    fn index(self) -> usize {
        self.0 as u32 as usize
    }
}

/// The connections with one peer, the one to send over first.
#[derive(Debug)]
struct Connections {
    ids: Vec<ConnectionId>,
    /// The peer's instance, once it is known.
    instance: Option<u64>,
}

/// The provider of memory shared with peers of this host.
const SHARED: &str = "shm";
/// The provider of addresses at which nothing is shared with whoever calls.
const UNSHARED: &str = "unix";

impl Table {
    /// The connections with `peer`, the one to send over first.
    fn connections_of(&self, peer: PeerId) -> impl Iterator<Item = &Connection> {
        let connections = self.peers.get(&peer).into_iter();
        let ids = connections.flat_map(|connections| &connections.ids);
        ids.filter_map(|id| self.connections.get(id))
    }

    /// The connection to send to `peer` over.
    #[inline]
    fn connection_to(&mut self, peer: PeerId) -> Result<&mut Connection, SubmitError> {
        let connections = self.peers.get(&peer);
        let id = connections.and_then(|connections| connections.ids.first());
        id.and_then(|id| self.connections.get_mut(id))
            .ok_or(SubmitError::NotConnected)
    }

    /// The memory that the ends of a connection share.
    fn sharing(&mut self, id: ConnectionId) -> Option<&mut Sharing> {
        self.connections.get_mut(&id)?.sharing.as_mut()
    }

    /// The name of the next connection.
    fn next_id(&self) -> ConnectionId {
        ConnectionId(self.made << 32 | self.connections.vacant_index() as u64)
    }
}

impl StreamProvider {
    const LISTENER: u64 = Poller::KEY_MAX;
    /// With more connections in use than these it is cheaper to ask the system which are ready.
    const HOT_MAX: usize = 4;
    /// For how long after something came more is expected at any moment.
    const HOT_TIME: Duration = Duration::from_micros(50);

    /// Listens for TCP connections. Returns the address by which peers reach it.
    pub(crate) fn listen_tcp(address: SocketAddr) -> Result<(OwnedFd, Address), BindError> {
        if address.ip().is_unspecified() {
            return Err(BindError::Unspecified { address });
        }
        let failed = |source: io::Error| BindError::Io { address, source };
        let (listener, bound) = socket::tcp_listener(address).map_err(|errno| failed(errno.into()))?;
        let named = format!("tcp://{bound}").parse();
        Ok((listener, named.map_err(|error| failed(io::Error::other(error)))?))
    }

    /// Listens for connections from this host to `address`.
    pub(crate) fn listen_unix(address: &Address) -> io::Result<OwnedFd> {
        if address.provider() != UNSHARED {
            // The page by which peers see this process die is held by the thread that makes the first endpoint, which
            // is likely to live long. If it cannot be had, they see it later, by their sockets.
            let _ = own_page();
        }
        Ok(socket::unix_listener(address.location())?)
    }

    /// A provider called `name` that serves those who connect to `listener`.
    pub(crate) fn new(
        name: &'static str,
        listener: OwnedFd,
        introduction: Introduction,
        options: &EndpointOptions,
        poller: Poller,
    ) -> Result<Self, BindError> {
        let address = options.bind;
        let failed = |errno: Errno| BindError::Io {
            address,
            source: errno.into(),
        };
        let family = if name == "tcp" { Family::Tcp } else { Family::Unix };
        poller
            .add(Self::LISTENER, &listener, EventFlags::IN)
            .map_err(failed)?;
        Ok(Self {
            name,
            family,
            introduction,
            limits: options.limits,
            bulk_checksum: options.bulk_checksum,
            poller,
            table: Table {
                connections: DenseMap::new(),
                peers: DenseMap::new(),
                made: 0,
            },
            reception: Reception {
                listener,
                paused: None,
                crowded: false,
                strangers: BTreeSet::new(),
                greeted: BTreeSet::new(),
            },
            deadlines: BTreeSet::new(),
            sendable: BTreeSet::new(),
            delayed: Delayed::default(),
            transfers: 0,
            direct: Transfers::new(),
            own_memory: match name {
                SHARED => driving::own_memory(options),
                _ => None,
            },
            attention: Attention::default(),
            channels: Channels::default(),
        })
    }

    /// Returns true if the two ends of a connection share memory: the address of the end that was called says
    /// so.
    fn shares(&self, called: &Address) -> bool {
        self.family == Family::Unix && called.provider() != UNSHARED
    }

    /// The connection to send to `peer` over, if a frame with a body of this size may wait there.
    fn connection_with_room(&mut self, peer: PeerId, size: usize) -> Result<&mut Connection, SubmitError> {
        let queued_bytes_max = self.limits.queued_bytes_max;
        let connection = self.table.connection_to(peer)?;
        if connection.queued_bytes() + HEADER_SIZE + size > queued_bytes_max {
            return Err(connection.is_full());
        }
        Ok(connection)
    }

    fn watch(&self, id: ConnectionId, socket: &OwnedFd, flags: EventFlags) -> Result<(), Errno> {
        self.poller.add(id.0, socket, flags)
    }

    /// Reads what has come over one connection.
    fn receive(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return;
        };
        let before = connection.wire.received_bytes();
        let doorbells = connection.doorbell_bytes();
        let result = connection.receive(&mut Surroundings {
            transfers: &mut self.transfers,
            own_memory: self.own_memory.as_ref(),
            around,
        });
        let received = connection.wire.received_bytes() - before;
        if received > 0 {
            self.attention.heard = Some(around.now);
            // After a doorbell nothing follows that it was not rung for.
            around.inbox.moved |= received > connection.doorbell_bytes() - doorbells;
            let hot = &mut self.attention.hot;
            if self.family == Family::Tcp && hot.len() < Self::HOT_MAX && !hot.contains(&id) {
                hot.push(id);
            }
        }
        if connection.has_frames() {
            self.sendable.insert(id);
        }
        let shares = connection.sharing.is_some() && connection.is_open();
        self.handle_handled(id, result, around);
        if shares {
            self.watch_bell(id, around);
            // Whatever comes is a doorbell.
            self.activate(id, around.now);
            self.exchange(id, around);
        }
    }

    fn handle_handled(
        &mut self,
        id: ConnectionId,
        result: Result<Handled, PeerDeath>,
        around: &mut Around<'_>,
    ) {
        match result {
            Ok(Handled::Frames) => {}
            Ok(Handled::Greeted) => self.handle_greeted(id, around),
            Ok(Handled::Proven(peer)) => self.handle_proven(id, peer, around),
            Err(cause) => self.lose(id, cause, around),
        }
    }

    fn flush(&mut self, around: &mut Around<'_>) {
        self.sendable.extend(self.delayed.take_due(around.now));
        if self.sendable.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.sendable) {
            self.delayed.forget(id);
            let Some(connection) = self.table.connections.get_mut(&id) else {
                continue;
            };
            match connection.flush(around.regions) {
                Err(cause) => self.lose(id, cause, around),
                Ok(()) if connection.wire.blocked => {
                    let flags = EventFlags::IN | EventFlags::OUT;
                    if let Err(errno) = self.poller.modify(id.0, &connection.wire, flags) {
                        self.lose(id, errno.into(), around);
                    }
                }
                Ok(()) if connection.can_send() && connection.has_frames() => {
                    self.sendable.insert(id);
                }
                Ok(()) => {}
            }
        }
    }

    fn handle_deadlines(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        self.resume_accept(now);
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            let Some(connection) = self.table.connections.get(&id) else {
                continue;
            };
            if connection.is_paused() {
                self.redial(id, around);
            } else if connection.is_excused(self.family) {
                connection.await_answer(self.family, self.limits.connect_timeout);
            } else {
                let cause = connection.overdue();
                self.lose(id, cause, around);
            }
        }
    }
}

impl Provider for StreamProvider {
    fn connect(&mut self, peer: PeerId, address: &Address, is_stopped: bool) -> Result<(), SubmitError> {
        if !self.table.peers.contains_key(&peer) {
            self.dial(peer, address)?;
        }
        if is_stopped && let Ok(connection) = self.table.connection_to(peer) {
            connection.is_patient = true;
        }
        Ok(())
    }

    fn link(&self, peer: PeerId) -> Option<Link> {
        let mut connections = self.table.connections_of(peer).peekable();
        let name = match (self.family, connections.peek()) {
            (Family::Unix, Some(connection)) if connection.sharing.is_none() => UNSHARED,
            (Family::Unix, Some(_)) => SHARED,
            _ => self.name,
        };
        self.table.peers.contains_key(&peer).then(|| Link {
            name,
            is_reached: connections.any(Connection::is_reached),
        })
    }

    fn activity(&self, peer: PeerId) -> Activity {
        self.table.connections_of(peer).map(Connection::activity).sum()
    }

    fn disconnect(&mut self, peer: PeerId, cause: PeerDeath, around: &mut Around<'_>) {
        self.lose_peer(peer, Vec::new(), cause, around);
    }

    fn send(&mut self, peer: PeerId, message: OutgoingMessage<'_>) -> Result<(), SubmitError> {
        let connection = self.table.connection_to(peer)?;
        if connection.queued_bytes() + HEADER_SIZE + message.size() > self.limits.queued_bytes_max {
            return Err(connection.is_full());
        }
        let id = connection.id;
        if let Some(sharing) = &mut connection.sharing {
            let body = message.whole();
            sharing.channel.send(message.kind, message.tag, &body);
            if !std::mem::replace(&mut sharing.active, true) {
                self.channels.active.push(id);
            }
            self.channels.unannounced = true;
            return Ok(());
        }
        // Both go if another one waits already.
        let may_wait = message.may_wait && !connection.has_frames();
        connection.frames.send(message);
        if may_wait {
            self.delayed.note(id);
            return Ok(());
        }
        match connection.frames.outbox.is_worth_sending() && connection.send_early() {
            true => self.delayed.forget(id),
            false => drop(self.sendable.insert(id)),
        }
        Ok(())
    }

    fn transfer(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        memory: Memory,
    ) -> Result<(), SubmitError> {
        self.start(operation, peer, access, memory)
    }

    fn cancel(&mut self, operation: OperationId, peer: PeerId) {
        if self.direct.cancel(operation) {
            return;
        }
        let Table {
            peers, connections, ..
        } = &mut self.table;
        for &id in peers.get(&peer).into_iter().flat_map(|known| &known.ids) {
            if let Some(connection) = connections.get_mut(&id)
                && connection.frames.cancel(operation)
            {
                self.transfers -= 1;
                self.sendable.insert(id);
            }
        }
    }

    fn send_queued(&mut self, around: &mut Around<'_>) {
        self.exchange_all(around);
        self.copy_directly(around);
        self.flush(around);
    }

    fn progress(&mut self, ready: Option<&Ready>, around: &mut Around<'_>) {
        if let Some(ready) = ready {
            self.look(ready, around);
        } else {
            // Each time another one is first here too.
            let others = self.attention.hot.len().min(1);
            self.attention.hot.rotate_left(others);
            for index in 0..self.attention.hot.len() {
                if let Some(&id) = self.attention.hot.get(index) {
                    self.receive(id, around);
                }
            }
        }
        self.flush(around);
        if self.attention.hot.is_empty() {
            return;
        }
        let cold = |heard| around.now.saturating_duration_since(heard) > Self::HOT_TIME;
        if self.attention.heard.is_none_or(cold) {
            self.attention.hot.clear();
        }
    }

    fn has(&self, work: Work) -> bool {
        match work {
            Work::Hot => {
                let is_used = !self.attention.hot.is_empty() || !self.channels.active.is_empty();
                is_used || !self.direct.is_empty()
            }
            Work::Sendable => {
                self.channels.unannounced || !self.sendable.is_empty() || !self.direct.is_empty()
            }
            Work::Transfers => self.transfers > 0,
            Work::Unsent => {
                let has_unsent = |known: &Connection| known.peer.is_some() && known.has_unsent();
                self.table.connections.values().any(has_unsent)
            }
        }
    }

    fn arm(&mut self) -> Sleep {
        if !self.direct.is_empty() || !self.sendable.is_empty() || self.arm_channels() {
            return Sleep::No;
        }
        let opening = self.deadlines.first().map(|&(deadline, _)| deadline);
        let now = Instant::now();
        let sweep = self.is_swept().then(|| now + Self::SWEEP_INTERVAL);
        let delayed = self.delayed.next_due(now);
        let deadlines = [opening, self.reception.paused, sweep, delayed];
        Sleep::Until(deadlines.into_iter().flatten().min())
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        match self.family {
            Family::Tcp => None,
            Family::Unix => Some(self),
        }
    }
}

impl SharedMemory for StreamProvider {
    fn receive(&mut self, around: &mut Around<'_>, messages: &mut Messages) {
        self.receive_from_channels(around, messages);
    }

    fn allocate(&mut self, length: usize) -> Option<Buffer> {
        self.own_memory.as_ref()?.allocate(length)
    }

    fn handle_exposed(&mut self, region: &RegionHandle, memory: RegionMemory<'_>) {
        if let Some(own) = &self.own_memory {
            own.publish(region, memory);
        }
    }

    fn handle_withdrawn(&mut self, region: u64, memory: Withdrawn) -> Withdrawn {
        self.take_back(region, memory)
    }

    fn sees_processes(&self) -> bool {
        self.shares(&self.introduction.peer.address)
    }
}
