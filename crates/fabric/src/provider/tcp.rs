//! TCP: non-blocking sockets behind one epoll descriptor.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    time::Timespec,
};

use self::{
    connection::{Connection, Handled, Surroundings},
    outbox::{Source, Stream},
};
use super::{MessageKind, Provider, ProviderEvent, TransferFailure};
use crate::{
    Address, BindError, Buffer, EndpointOptions, HandshakeError, Limits, OperationId, Peer, PeerDeath,
    RegionHandle, SubmitError,
    frame::{Header, Kind},
    handshake::{Handshake, Introduction},
    region_table::RegionTable,
};

mod connection;
mod outbox;
mod socket;
#[cfg(test)]
mod tests;

/// Endpoints at `tcp://IP:PORT`.
///
/// A peer is reached over the first connection with it, whoever made it; if both made one at the same time both
/// stay, each side sending over its own. The loss of one is the death of the peer, and closes the other.
pub(crate) struct TcpProvider {
    introduction: Introduction,
    limits: Limits,
    listener: OwnedFd,
    /// Until when nobody is accepted, because the system is out of descriptors.
    accept_paused: Option<Instant>,
    poller: OwnedFd,
    connections: BTreeMap<ConnectionId, Connection>,
    peers: BTreeMap<Address, Connections>,
    /// Accepted connections whose other end has not named the job yet.
    strangers: BTreeSet<ConnectionId>,
    /// When a connection that is not open yet is given up.
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    /// Connections that have something to send and are not known to be blocked.
    sendable: BTreeSet<ConnectionId>,
    transfers: BTreeMap<OperationId, Transfer>,
    next_connection: u64,
    turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionId(u64);

/// The connections with one peer, the one to send over first.
#[derive(Debug)]
struct Connections {
    ids: Vec<ConnectionId>,
    /// The peer's instance, once it is known.
    instance: Option<u64>,
}

/// A one-sided operation of ours.
#[derive(Debug)]
enum Transfer {
    Get {
        connection: ConnectionId,
        into: Buffer,
        received: usize,
    },
    Put {
        connection: ConnectionId,
    },
}

impl Transfer {
    fn connection(&self) -> ConnectionId {
        match self {
            Self::Get { connection, .. } | Self::Put { connection } => *connection,
        }
    }
}

impl TcpProvider {
    /// The provider's name in addresses.
    const NAME: &str = "tcp";
    const LISTENER: u64 = u64::MAX;
    /// How many sockets are looked at in one `progress`.
    const READY_MAX: usize = 128;
    /// How many connections are accepted in one `progress`.
    const ACCEPTED_MAX: usize = 64;
    /// How often a connection is made anew that the peer dropped before it was open: it may have been stalled, or had
    /// to make room in a flood of strangers.
    const REDIALS_MAX: u32 = 3;
    /// How long nobody is accepted after the system ran out of descriptors.
    const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

    pub(crate) fn bind(options: &EndpointOptions) -> Result<Self, BindError> {
        let address = options.bind;
        if address.ip().is_unspecified() {
            return Err(BindError::Unspecified { address });
        }
        let failed = |source: io::Error| BindError::Io { address, source };
        let (listener, bound) = socket::listener(address).map_err(|errno| failed(errno.into()))?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let data = EventData::new_u64(Self::LISTENER);
        epoll::add(&poller, &listener, data, EventFlags::IN).map_err(|errno| failed(errno.into()))?;
        let mut instance = [0; 8];
        getrandom::fill(&mut instance).map_err(|error| failed(io::Error::other(error)))?;
        let location = format!("{}://{bound}", Self::NAME);
        Ok(Self {
            introduction: Introduction {
                job: options.job,
                key: options.key.clone(),
                peer: Peer {
                    address: location
                        .parse()
                        .map_err(|error| failed(io::Error::other(error)))?,
                    identity: options.identity,
                },
                instance: u64::from_le_bytes(instance),
            },
            limits: options.limits,
            listener,
            accept_paused: None,
            poller,
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            strangers: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            sendable: BTreeSet::new(),
            transfers: BTreeMap::new(),
            next_connection: 0,
            turn: 0,
        })
    }

    /// The connection to send to `peer` over, made if there is none.
    fn connection_to(&mut self, peer: &Address) -> Result<&mut Connection, SubmitError> {
        let id = match self
            .peers
            .get(peer)
            .and_then(|connections| connections.ids.first())
        {
            Some(&id) => id,
            None => self.dial(peer)?,
        };
        Ok(self
            .connections
            .get_mut(&id)
            .expect("a connection is taken out of its peer's list when it is taken out here"))
    }

    fn dial(&mut self, peer: &Address) -> Result<ConnectionId, SubmitError> {
        let unreachable = || SubmitError::Unreachable {
            address: peer.clone(),
        };
        if peer.provider() != Self::NAME {
            return Err(unreachable());
        }
        let location: SocketAddr = peer.location().parse().map_err(|_| unreachable())?;
        if self.connections.len() >= self.limits.connections_max {
            return Err(self.busy(peer, "connections_max"));
        }
        let failed = |errno: Errno| SubmitError::Connect {
            peer: peer.clone(),
            source: Arc::new(errno.into()),
        };
        let nonce = random_nonce().map_err(failed)?;
        let socket = socket::dial(location).map_err(failed)?;
        let id = ConnectionId(self.next_connection);
        self.watch(id, &socket, EventFlags::IN | EventFlags::OUT)
            .map_err(failed)?;
        self.next_connection += 1;
        let handshake = Handshake::initiate(self.introduction.clone(), peer.clone(), nonce);
        let connection = Connection::dialed(id, socket, peer.clone(), handshake, &self.limits);
        self.deadlines.insert((connection.deadline, id));
        self.connections.insert(id, connection);
        let connections = Connections {
            ids: vec![id],
            instance: None,
        };
        self.peers.insert(peer.clone(), connections);
        Ok(id)
    }

    /// Makes a connection anew that was dropped during its handshake. Returns whether it is being made.
    fn redial(&mut self, id: ConnectionId, cause: &PeerDeath) -> bool {
        let dropped = match cause {
            PeerDeath::Handshake(HandshakeError::Refused) => true,
            PeerDeath::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        };
        let Some(connection) = self.connections.get(&id) else {
            return false;
        };
        let (false, true, Some(peer)) = (connection.is_open(), dropped, connection.peer.clone()) else {
            return false;
        };
        if connection.redials == Self::REDIALS_MAX {
            return false;
        }
        let (Ok(location), Ok(nonce)) = (peer.location().parse(), random_nonce()) else {
            return false;
        };
        let Ok(socket) = socket::dial(location) else {
            return false;
        };
        let _ = epoll::delete(&self.poller, &connection.socket);
        if self.watch(id, &socket, EventFlags::IN | EventFlags::OUT).is_err() {
            return false;
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        self.deadlines.remove(&(connection.deadline, id));
        let deadline = Instant::now() + self.limits.connect_timeout;
        let handshake = Handshake::initiate(self.introduction.clone(), peer, nonce);
        connection.redial(socket, handshake, deadline);
        self.deadlines.insert((deadline, id));
        true
    }

    fn busy(&self, peer: &Address, limit: &'static str) -> SubmitError {
        SubmitError::Busy {
            peer: peer.clone(),
            limit,
        }
    }

    fn watch(&self, id: ConnectionId, socket: &OwnedFd, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.poller, socket, EventData::new_u64(id.0), flags)
    }

    fn accept(&mut self, now: Instant, events: &mut Vec<ProviderEvent>) {
        for _ in 0..Self::ACCEPTED_MAX {
            match socket::accept(&self.listener) {
                Ok(socket) => self.handle_accepted(socket, now, events),
                Err(Errno::AGAIN) => return,
                // Not having accepted, the listener would stay readable and keep us busy for nothing.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    if epoll::delete(&self.poller, &self.listener).is_ok() {
                        self.accept_paused = Some(now + Self::ACCEPT_PAUSE);
                    }
                    return;
                }
                // This one is gone already; the next may not be.
                Err(_) => {}
            }
        }
    }

    fn resume_accept(&mut self, now: Instant) {
        if self.accept_paused.is_some_and(|until| until <= now) {
            let data = EventData::new_u64(Self::LISTENER);
            self.accept_paused = match epoll::add(&self.poller, &self.listener, data, EventFlags::IN) {
                Ok(()) => None,
                Err(_) => Some(now + Self::ACCEPT_PAUSE),
            };
        }
    }

    fn handle_accepted(&mut self, socket: OwnedFd, now: Instant, events: &mut Vec<ProviderEvent>) {
        if self.connections.len() >= self.limits.connections_max {
            return;
        }
        // A peer greets in a moment: in a flood of strangers the oldest is the least likely to be one.
        if self.strangers.len() >= self.limits.strangers_max
            && let Some(oldest) = self.strangers.pop_first()
        {
            self.lose(oldest, PeerDeath::Closed, events);
        }
        let Ok(nonce) = random_nonce() else {
            return;
        };
        let id = ConnectionId(self.next_connection);
        if self.watch(id, &socket, EventFlags::IN).is_err() {
            return;
        }
        self.next_connection += 1;
        let handshake = Handshake::respond(self.introduction.clone(), nonce);
        let connection = Connection::accepted(id, socket, handshake, now, &self.limits);
        self.deadlines.insert((connection.deadline, id));
        self.strangers.insert(id);
        self.connections.insert(id, connection);
    }

    /// Does what the poller said is possible on one connection.
    fn handle_ready(
        &mut self,
        id: ConnectionId,
        flags: EventFlags,
        now: Instant,
        budget: usize,
        regions: &mut RegionTable,
        events: &mut Vec<ProviderEvent>,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let mut result = Ok(Handled::Frames);
        if flags.contains(EventFlags::OUT) {
            result = connection.handle_writable();
            self.sendable.insert(id);
            let data = EventData::new_u64(id.0);
            // If it fails the socket stays watched for more than is needed, and costs a look each time.
            let _ = epoll::modify(&self.poller, &connection.socket, data, EventFlags::IN);
        }
        if matches!(result, Ok(Handled::Frames))
            && flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR)
        {
            result = connection.receive(&mut Surroundings {
                transfers: &mut self.transfers,
                regions,
                events,
                events_max: budget,
            });
            if !connection.outbox.is_empty() {
                self.sendable.insert(id);
            }
        }
        match result {
            Ok(Handled::Frames) => {}
            Ok(Handled::Greeted) => self.handle_greeted(id, now),
            Ok(Handled::Proven { peer, instance }) => {
                self.handle_proven(id, peer, instance, regions, events);
            }
            Err(cause) => self.lose(id, cause, events),
        }
    }

    /// Gives the next step of the handshake its own time: a side that was not driven for long is no stranger.
    fn handle_greeted(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        self.deadlines.remove(&(connection.deadline, id));
        connection.deadline = now
            + if self.strangers.remove(&id) {
                self.limits.handshake_timeout
            } else {
                self.limits.connect_timeout
            };
        self.deadlines.insert((connection.deadline, id));
    }

    fn handle_proven(
        &mut self,
        id: ConnectionId,
        peer: Peer,
        instance: u64,
        regions: &mut RegionTable,
        events: &mut Vec<ProviderEvent>,
    ) {
        let known = self.peers.get(&peer.address);
        if let Some(earlier) = known
            && earlier.instance.is_some_and(|known| known != instance)
            && let Some(&earlier) = earlier.ids.iter().find(|&&earlier| earlier != id)
        {
            self.take_from_peer(id);
            self.lose(earlier, PeerDeath::Replaced, events);
        }
        let connections = self.peers.entry(peer.address.clone()).or_insert(Connections {
            ids: Vec::new(),
            instance: None,
        });
        connections.instance = Some(instance);
        if !connections.ids.contains(&id) {
            connections.ids.push(id);
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        self.strangers.remove(&id);
        self.deadlines.remove(&(connection.deadline, id));
        connection.open(Arc::new(peer));
        self.sendable.insert(id);
        // Its first frames may have come with the end of the handshake.
        let decoded = connection.handle_decoded(&mut Surroundings {
            transfers: &mut self.transfers,
            regions,
            events,
            events_max: usize::MAX,
        });
        if let Err(cause) = decoded {
            self.lose(id, cause, events);
        }
    }

    /// Takes one connection out of its peer's list, so that it outlives the others.
    fn take_from_peer(&mut self, id: ConnectionId) {
        let peer = self
            .connections
            .get(&id)
            .and_then(|connection| connection.peer.as_ref());
        if let Some(connections) = peer.and_then(|peer| self.peers.get_mut(peer)) {
            connections.ids.retain(|&other| other != id);
        }
    }

    fn flush(&mut self, regions: &RegionTable, events: &mut Vec<ProviderEvent>) {
        for id in std::mem::take(&mut self.sendable) {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            match connection.flush(regions) {
                Err(cause) => self.lose(id, cause, events),
                Ok(()) if connection.blocked => {
                    let data = EventData::new_u64(id.0);
                    let flags = EventFlags::IN | EventFlags::OUT;
                    if let Err(errno) = epoll::modify(&self.poller, &connection.socket, data, flags) {
                        self.lose(id, errno.into(), events);
                    }
                }
                Ok(()) if connection.is_open() && !connection.outbox.is_empty() => {
                    self.sendable.insert(id);
                }
                Ok(()) => {}
            }
        }
    }

    /// Closes a connection, and with it all others of its peer, ends what was in progress with the peer, and tells.
    fn lose(&mut self, id: ConnectionId, cause: PeerDeath, events: &mut Vec<ProviderEvent>) {
        if self.redial(id, &cause) {
            return;
        }
        let Some(peer) = self.close(id) else {
            return;
        };
        let Some(connections) = self.peers.remove(&peer) else {
            return;
        };
        for &other in &connections.ids {
            self.close(other);
        }
        let lost: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| connections.ids.contains(&transfer.connection()))
            .map(|(&operation, _)| operation)
            .collect();
        for operation in lost {
            self.transfers.remove(&operation);
            let result = Err(TransferFailure::PeerDied(cause.clone()));
            events.push(ProviderEvent::Transferred { operation, result });
        }
        events.push(ProviderEvent::PeerDied { peer, cause });
    }

    /// Closes one connection. Returns whose it was, if that was known.
    fn close(&mut self, id: ConnectionId) -> Option<Address> {
        let connection = self.connections.remove(&id)?;
        self.strangers.remove(&id);
        self.sendable.remove(&id);
        self.deadlines.remove(&(connection.deadline, id));
        // Closing is not enough if a child of this process has a copy of the descriptor.
        let _ = epoll::delete(&self.poller, &connection.socket);
        connection.peer
    }

    fn handle_deadlines(&mut self, now: Instant, events: &mut Vec<ProviderEvent>) {
        self.resume_accept(now);
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            if let Some(connection) = self.connections.get(&id) {
                let cause = connection.overdue();
                self.lose(id, cause, events);
            }
        }
    }
}

impl Provider for TcpProvider {
    fn address(&self) -> &Address {
        &self.introduction.peer.address
    }

    fn connect(&mut self, peer: &Address) -> Result<(), SubmitError> {
        self.connection_to(peer).map(drop)
    }

    fn send(&mut self, peer: &Address, kind: MessageKind, tag: u64, body: Bytes) -> Result<(), SubmitError> {
        let queued_bytes_max = self.limits.queued_bytes_max;
        let connection = self.connection_to(peer)?;
        if connection.outbox.queued_bytes() + body.len() > queued_bytes_max {
            return Err(self.busy(peer, "queued_bytes_max"));
        }
        let kind = match kind {
            MessageKind::Expected => Kind::Expected,
            MessageKind::Unexpected => Kind::Unexpected,
        };
        connection.outbox.push_frame(Header::new(kind, tag), body);
        let id = connection.id;
        self.sendable.insert(id);
        Ok(())
    }

    fn get(
        &mut self,
        operation: OperationId,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
    ) -> Result<(), SubmitError> {
        let connection = self.connection_to(&region.address)?;
        let length = into.len() as u64;
        connection.request(Kind::Get, operation, region, offset, length);
        let connection = connection.id;
        self.sendable.insert(connection);
        let transfer = Transfer::Get {
            connection,
            into,
            received: 0,
        };
        self.transfers.insert(operation, transfer);
        Ok(())
    }

    fn put(
        &mut self,
        operation: OperationId,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
    ) -> Result<(), SubmitError> {
        let connection = self.connection_to(&region.address)?;
        connection.request(Kind::Put, operation, region, offset, from.len() as u64);
        if !from.is_empty() {
            connection.outbox.push_stream(Stream {
                id: operation.0,
                source: Source::Put(from),
            });
        }
        let connection = connection.id;
        self.sendable.insert(connection);
        self.transfers.insert(operation, Transfer::Put { connection });
        Ok(())
    }

    fn cancel(&mut self, operation: OperationId) {
        let Some(transfer) = self.transfers.remove(&operation) else {
            return;
        };
        let id = transfer.connection();
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.outbox.cancel_put(operation.0);
        let header = Header::new(Kind::Cancel, operation.0);
        connection.outbox.push_frame(header, Bytes::new());
        self.sendable.insert(id);
    }

    fn progress(
        &mut self,
        now: Instant,
        budget: usize,
        regions: &mut RegionTable,
        events: &mut Vec<ProviderEvent>,
    ) {
        self.flush(regions, events);
        let mut ready = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; Self::READY_MAX];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let count = epoll::wait(&self.poller, &mut ready, Some(&at_once)).unwrap_or(0);
        // Each time another one is first, so that none can use up the budget for ever.
        self.turn = self.turn.wrapping_add(1);
        for index in 0..count {
            let epoll::Event { flags, data } = ready[(index + self.turn) % count];
            match data.u64() {
                Self::LISTENER => self.accept(now, events),
                id => self.handle_ready(ConnectionId(id), flags, now, budget, regions, events),
            }
        }
        self.flush(regions, events);
        self.handle_deadlines(now, events);
    }

    fn has_sendable(&self) -> bool {
        !self.sendable.is_empty()
    }

    fn has_unsent(&self) -> bool {
        self.connections
            .values()
            .any(|connection| connection.peer.is_some() && !connection.outbox.is_empty())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let opening = self.deadlines.first().map(|&(deadline, _)| deadline);
        opening.into_iter().chain(self.accept_paused).min()
    }
}

impl AsFd for TcpProvider {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

fn random_nonce() -> Result<[u8; 32], Errno> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Errno::IO)?;
    Ok(nonce)
}
