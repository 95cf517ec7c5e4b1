//! How connections come to be: dialed or accepted, then proven.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};

use super::{
    ConnectionId, Connections, TcpProvider,
    connection::{Connection, Surroundings},
    socket,
};
use crate::{
    Address, HandshakeError, Peer, PeerDeath, SubmitError, handshake::Handshake, provider::ProviderEvent,
    region_table::RegionTable,
};

impl TcpProvider {
    /// How many connections are accepted in one `progress`.
    const ACCEPTED_MAX: usize = 64;
    /// How long to wait before each attempt to make a connection anew that the peer dropped before it was open:
    /// it may have been stalled, or had to make room in a flood of strangers.
    pub(super) const REDIAL_PAUSES: [Duration; 3] = [
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(250),
    ];
    /// How long nobody is accepted after the system ran out of descriptors.
    const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

    pub(super) fn dial(&mut self, peer: &Address) -> Result<ConnectionId, SubmitError> {
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

    /// Sees to it that a connection that was dropped during its handshake is made anew. Returns whether it is.
    pub(super) fn redial_later(&mut self, id: ConnectionId, cause: &PeerDeath) -> bool {
        let dropped = match cause {
            PeerDeath::Handshake(HandshakeError::Refused) => true,
            PeerDeath::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        };
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        if connection.is_open() || connection.accepted || !dropped {
            return false;
        }
        let Some(&pause) = Self::REDIAL_PAUSES.get(connection.redials) else {
            return false;
        };
        let _ = epoll::delete(&self.poller, &connection.socket);
        self.deadlines.remove(&(connection.deadline, id));
        connection.pause(Instant::now() + pause);
        self.deadlines.insert((connection.deadline, id));
        true
    }

    /// Makes a connection anew whose pause is over.
    pub(super) fn redial(&mut self, id: ConnectionId, now: Instant, events: &mut Vec<ProviderEvent>) {
        let called = self
            .connections
            .get(&id)
            .and_then(|connection| connection.peer.clone());
        let Some(peer) = called else {
            return;
        };
        let dialed = random_nonce().and_then(|nonce| {
            let location = peer.location().parse().map_err(|_| Errno::INVAL)?;
            let socket = socket::dial(location)?;
            self.watch(id, &socket, EventFlags::IN | EventFlags::OUT)?;
            Ok((nonce, socket))
        });
        match (dialed, self.connections.get_mut(&id)) {
            (Ok((nonce, socket)), Some(connection)) => {
                let handshake = Handshake::initiate(self.introduction.clone(), peer, nonce);
                connection.redial(socket, handshake, now + self.limits.connect_timeout);
                self.deadlines.insert((connection.deadline, id));
            }
            (Err(errno), _) => self.lose(id, errno.into(), events),
            (Ok(_), None) => {}
        }
    }

    /// Gives what was to go over a connection that could not be made to one that the peer made meanwhile.
    /// Returns whether there is one.
    pub(super) fn hand_over(&mut self, id: ConnectionId, cause: &PeerDeath) -> bool {
        let is_open = |id: &ConnectionId| self.connections.get(id).is_some_and(Connection::is_open);
        let called = self
            .connections
            .get(&id)
            .and_then(|connection| connection.peer.as_ref());
        let known = called.and_then(|peer| self.peers.get(peer));
        let other = known.and_then(|known| known.ids.iter().copied().find(is_open));
        let Some(other) = other else {
            return false;
        };
        // One that is replaced goes with all that its peer had.
        if is_open(&id) || matches!(cause, PeerDeath::Replaced) {
            return false;
        }
        self.take_from_peer(id);
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let outbox = std::mem::take(&mut connection.outbox);
        self.close(id);
        if let Some(connection) = self.connections.get_mut(&other) {
            connection.outbox.append(outbox);
            self.sendable.insert(other);
        }
        for transfer in self.transfers.values_mut() {
            transfer.hand_over(id, other);
        }
        true
    }

    pub(super) fn accept(&mut self, now: Instant, events: &mut Vec<ProviderEvent>) {
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

    pub(super) fn resume_accept(&mut self, now: Instant) {
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
            let unproven = self.strangers.first().or(self.greeted.first()).copied();
            let Some(unproven) = unproven else {
                return;
            };
            self.lose(unproven, PeerDeath::Closed, events);
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

    /// Gives the next step of the handshake its own time: a side that was not driven for long is no stranger.
    pub(super) fn handle_greeted(&mut self, id: ConnectionId, now: Instant, events: &mut Vec<ProviderEvent>) {
        let accepted = self.strangers.remove(&id);
        if accepted {
            // The job's id is no secret: whoever knows only that must not keep members out either.
            if self.greeted.len() >= self.limits.strangers_max
                && let Some(oldest) = self.greeted.pop_first()
            {
                self.lose(oldest, PeerDeath::Closed, events);
            }
            self.greeted.insert(id);
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        self.deadlines.remove(&(connection.deadline, id));
        connection.deadline = now
            + if accepted {
                self.limits.handshake_timeout
            } else {
                self.limits.connect_timeout
            };
        self.deadlines.insert((connection.deadline, id));
    }

    pub(super) fn handle_proven(
        &mut self,
        id: ConnectionId,
        peer: Peer,
        instance: u64,
        regions: &mut RegionTable,
        events: &mut Vec<ProviderEvent>,
    ) {
        let accepted = |id: &ConnectionId| self.connections.get(id).is_some_and(|known| known.accepted);
        let known = self.peers.get(&peer.address);
        // A peer connects only when it has no connection with us: its latest one is its only one.
        let same_instance = known.filter(|known| known.instance == Some(instance) && accepted(&id));
        let other = same_instance.and_then(|known| known.ids.iter().copied().find(accepted));
        if let Some(other) = other {
            if other > id {
                self.close(id);
                return;
            }
            self.lose(other, PeerDeath::Closed, events);
        } else if let Some(earlier) = known
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
        self.greeted.remove(&id);
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
}

fn random_nonce() -> Result<[u8; 32], Errno> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Errno::IO)?;
    Ok(nonce)
}
