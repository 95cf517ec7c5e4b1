//! TCP: non-blocking sockets behind one epoll descriptor.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
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
    Address, BindError, Buffer, EndpointOptions, Limits, OperationId, Peer, PeerDeath, RegionHandle,
    SubmitError,
    frame::{ACCESS_SIZE, HEADER_SIZE, Header, Kind},
    handshake::Introduction,
    region_table::RegionTable,
};

mod connection;
mod opening;
mod outbox;
mod socket;
#[cfg(test)]
mod tests;

/// Endpoints at `tcp://IP:PORT`.
///
/// A peer is reached over the first connection with it, whoever made it; if both made one at the same time
/// both stay, each side sending over its own. The loss of one is the death of the peer, and closes the other;
/// a second connection that a peer makes shows that it has lost the first.
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
    /// Accepted connections whose other end has named the job, but has not proven itself.
    greeted: BTreeSet<ConnectionId>,
    /// When a connection that is not open yet is given up, or made anew.
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

    /// Goes on over another connection if it was to go over `from`.
    fn hand_over(&mut self, from: ConnectionId, to: ConnectionId) {
        let (Self::Get { connection, .. } | Self::Put { connection }) = self;
        if *connection == from {
            *connection = to;
        }
    }
}

impl TcpProvider {
    /// The provider's name in addresses.
    const NAME: &str = "tcp";
    const LISTENER: u64 = u64::MAX;
    /// How many sockets are looked at in one `progress`.
    const READY_MAX: usize = 128;

    /// Listens. `instance` is random bits that tell this endpoint from a later one at its address.
    pub(crate) fn bind(options: &EndpointOptions, instance: u64) -> Result<Self, BindError> {
        let address = options.bind;
        if address.ip().is_unspecified() {
            return Err(BindError::Unspecified { address });
        }
        let failed = |source: io::Error| BindError::Io { address, source };
        let (listener, bound) = socket::listener(address).map_err(|errno| failed(errno.into()))?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let data = EventData::new_u64(Self::LISTENER);
        epoll::add(&poller, &listener, data, EventFlags::IN).map_err(|errno| failed(errno.into()))?;
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
                instance,
            },
            limits: options.limits,
            listener,
            accept_paused: None,
            poller,
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            strangers: BTreeSet::new(),
            greeted: BTreeSet::new(),
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

    /// The connection to send to `peer` over, if a frame with a body of this size may wait there.
    fn connection_with_room(&mut self, peer: &Address, size: usize) -> Result<&mut Connection, SubmitError> {
        let queued_bytes_max = self.limits.queued_bytes_max;
        let busy = self.busy(peer, "queued_bytes_max");
        let connection = self.connection_to(peer)?;
        if connection.outbox.queued_bytes() + HEADER_SIZE + size > queued_bytes_max {
            return Err(busy);
        }
        Ok(connection)
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
            let mut wanted = EventFlags::IN;
            wanted.set(EventFlags::OUT, connection.is_connecting());
            // If it fails the socket stays watched for more than is needed, and costs a look each time.
            let _ = epoll::modify(&self.poller, &connection.socket, data, wanted);
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
            Ok(Handled::Greeted) => self.handle_greeted(id, now, events),
            Ok(Handled::Proven { peer, instance }) => {
                self.handle_proven(id, peer, instance, regions, events);
            }
            Err(cause) => self.lose(id, cause, events),
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
                Ok(()) if connection.can_send() && !connection.outbox.is_empty() => {
                    self.sendable.insert(id);
                }
                Ok(()) => {}
            }
        }
    }

    /// Closes a connection, and with it all others of its peer, ends what was in progress with the peer, and
    /// tells.
    fn lose(&mut self, id: ConnectionId, cause: PeerDeath, events: &mut Vec<ProviderEvent>) {
        if self.hand_over(id, &cause) || self.redial_later(id, &cause) {
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
        self.greeted.remove(&id);
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
            let Some(connection) = self.connections.get(&id) else {
                continue;
            };
            if connection.is_paused() {
                self.redial(id, now, events);
            } else {
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

    fn is_connected(&self, peer: &Address) -> bool {
        self.peers.contains_key(peer)
    }

    fn send(&mut self, peer: &Address, kind: MessageKind, tag: u64, body: Bytes) -> Result<(), SubmitError> {
        let connection = self.connection_with_room(peer, body.len())?;
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
        let connection = self.connection_with_room(&region.address, ACCESS_SIZE)?;
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
        let connection = self.connection_with_room(&region.address, ACCESS_SIZE)?;
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
