//! How connections come to be, dialed or accepted and then proven, and how they end.

use std::{
    collections::BTreeSet,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{event::epoll::EventFlags, io::Errno};

use super::{
    ConnectionId, Connections, StreamProvider,
    connection::{Connection, Surroundings},
    socket::{self, Family},
};
use crate::{
    Address, HandshakeError, OperationId, Peer, PeerDeath, PeerId, SubmitError,
    handshake::Handshake,
    inbox::Around,
    provider::{TransferFailure, frames::Frames},
};

impl StreamProvider {
    /// How many connections are accepted in one `progress`.
    const ACCEPTED_MAX: usize = 64;
    /// How long to wait before each attempt to make a connection anew that the peer dropped before it was open:
    /// it may have been stalled, or had to make room in a flood of strangers.
    pub(super) const REDIAL_PAUSES: [Duration; 3] = [
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(250),
    ];
    /// How long nobody who was accepted, or has greeted, has to make room for others: processes that all start at once
    /// are no flood.
    const SPARED_TIME: Duration = Duration::from_millis(200);
    /// How long nobody is accepted after the system ran out of descriptors.
    const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

    pub(super) fn dial(&mut self, peer: PeerId, address: &Address) -> Result<(), SubmitError> {
        let unreachable = || SubmitError::Unreachable {
            address: address.clone(),
            expected: self.family.reached(),
        };
        let location = self.family.locate(address).ok_or_else(unreachable)?;
        if self.table.connections.len() >= self.limits.connections_max {
            return Err(SubmitError::Busy {
                peer: address.clone(),
                limit: "connections_max",
            });
        }
        let failed = |errno: Errno| SubmitError::Connect {
            peer: address.clone(),
            source: Arc::new(errno.into()),
        };
        let nonce = random_nonce().map_err(failed)?;
        let (socket, refused) = match socket::dial(&location) {
            Ok(socket) => (socket, false),
            // Nobody of that name is on this host, or has time.
            Err(Errno::CONNREFUSED | Errno::AGAIN) if self.family == Family::Unix => {
                if address.provider() == "tcp" {
                    return Err(unreachable());
                }
                (socket::new_unix_socket().map_err(failed)?, true)
            }
            Err(errno) => return Err(failed(errno)),
        };
        let id = self.table.next_id();
        self.watch(id, &socket, EventFlags::IN | EventFlags::OUT)
            .map_err(failed)?;
        self.table.made += 1;
        let handshake = Handshake::initiate(self.introduction.clone(), address.clone(), nonce);
        let mut connection = Connection::dialed(
            id,
            self.shares(address),
            socket,
            (peer, address.clone()),
            handshake,
            &self.limits,
        );
        if refused {
            // It is told as with other transports, where it takes time to be known.
            connection.pause(Instant::now());
        }
        self.deadlines.insert((connection.deadline, id));
        self.table.connections.insert(id, connection);
        let connections = Connections {
            ids: vec![id],
            instance: None,
        };
        self.table.peers.insert(peer, connections);
        Ok(())
    }

    /// Sees to it that a connection that was dropped during its handshake is made anew. Returns whether it is.
    pub(super) fn redial_later(&mut self, id: ConnectionId, cause: &PeerDeath) -> bool {
        let failed_by = |kind| matches!(cause, PeerDeath::Io(error) if error.kind() == kind);
        // A UNIX socket whose queue is full: whoever listens has as long as one that is silent.
        let is_full = failed_by(io::ErrorKind::WouldBlock);
        let dropped = is_full
            || failed_by(io::ErrorKind::ConnectionReset)
            || matches!(cause, PeerDeath::Handshake(HandshakeError::Refused));
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return false;
        };
        if connection.is_open() || connection.accepted || !dropped {
            return false;
        }
        let [.., longest] = Self::REDIAL_PAUSES;
        let pause = match Self::REDIAL_PAUSES.get(connection.redials as usize) {
            Some(&pause) => pause,
            None if is_full && longest * connection.redials < self.limits.connect_timeout => longest,
            None => return false,
        };
        let _ = self.poller.delete(&connection.wire);
        self.deadlines.remove(&(connection.deadline, id));
        connection.pause(Instant::now() + pause);
        self.deadlines.insert((connection.deadline, id));
        true
    }

    /// Makes a connection anew whose pause is over.
    pub(super) fn redial(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let Some(address) = self
            .table
            .connections
            .get(&id)
            .map(|connection| connection.called().clone())
        else {
            return;
        };
        let dialed = random_nonce().and_then(|nonce| {
            let location = self.family.locate(&address).ok_or(Errno::INVAL)?;
            let socket = socket::dial(&location)?;
            self.watch(id, &socket, EventFlags::IN | EventFlags::OUT)?;
            Ok((nonce, socket))
        });
        match (dialed, self.table.connections.get_mut(&id)) {
            (Ok((nonce, socket)), Some(connection)) => {
                let handshake = Handshake::initiate(self.introduction.clone(), address, nonce);
                connection.redial(socket, handshake, around.now + self.limits.connect_timeout);
                self.deadlines.insert((connection.deadline, id));
            }
            (Err(errno), _) => self.lose(id, errno.into(), around),
            (Ok(_), None) => {}
        }
    }

    /// Gives what was to go over a connection that could not be made to one that the peer made meanwhile.
    /// Returns whether there is one.
    pub(super) fn hand_over(&mut self, id: ConnectionId, cause: &PeerDeath, now: Instant) -> bool {
        let is_open = |id: &ConnectionId| self.table.connections.get(id).is_some_and(Connection::is_open);
        let called = self
            .table
            .connections
            .get(&id)
            .and_then(|connection| connection.peer);
        let known = called.and_then(|peer| self.table.peers.get(&peer));
        let other = known.and_then(|known| known.ids.iter().copied().find(is_open));
        let Some(other) = other else {
            return false;
        };
        // What goes through shared memory on the one may not go over the other.
        let shares = |id: &ConnectionId| {
            self.table
                .connections
                .get(id)
                .map(|known| known.sharing.is_some())
        };
        if shares(&id) != shares(&other) {
            return false;
        }
        // One that is replaced goes with all that its peer had.
        if is_open(&id) || matches!(cause, PeerDeath::Replaced) {
            return false;
        }
        self.take_from_peer(id);
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return false;
        };
        let frames = std::mem::replace(&mut connection.frames, Frames::new(&self.limits));
        let sharing = connection.sharing.take();
        self.close(id, &mut Vec::new());
        if let Some(connection) = self.table.connections.get_mut(&other) {
            connection.frames.append(frames);
            if let Some((sharing, unsent)) = connection.sharing.as_mut().zip(sharing) {
                sharing.channel.append(unsent.channel);
            }
            self.sendable.insert(other);
        }
        self.activate(other, now);
        true
    }

    pub(super) fn accept(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        for _ in 0..Self::ACCEPTED_MAX {
            if let Err(until) = self.make_room(around) {
                self.reception.crowded = true;
                self.pause_accept(until);
                return;
            }
            match socket::accept(self.family, &self.reception.listener) {
                Ok(socket) => self.handle_accepted(socket, around),
                Err(Errno::AGAIN) => return,
                // Not having accepted, the listener would stay readable and keep us busy for nothing.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.pause_accept(now + Self::ACCEPT_PAUSE);
                    return;
                }
                // This one is gone already; the next may not be.
                Err(_) => {}
            }
        }
    }

    fn pause_accept(&mut self, until: Instant) {
        if self.poller.delete(&self.reception.listener).is_ok() {
            self.reception.paused = Some(until);
        }
    }

    pub(super) fn resume_accept(&mut self, now: Instant) {
        let strangers_max = self.limits.strangers_max;
        let has_room = self.reception.strangers.len() < strangers_max
            && self.reception.greeted.len() < strangers_max
            && self.table.connections.len() < self.limits.connections_max;
        let over = |until| until <= now || self.reception.crowded && has_room;
        if self.reception.paused.is_some_and(over) {
            self.reception.crowded = false;
            self.reception.paused =
                match self
                    .poller
                    .add(Self::LISTENER, &self.reception.listener, EventFlags::IN)
                {
                    Ok(()) => None,
                    Err(_) => Some(now + Self::ACCEPT_PAUSE),
                };
        }
    }

    /// Sees to it that there is room for one more connection, if there has to be.
    ///
    /// # Errors
    /// With the time until which nobody is to make room, for whom those who wait in the backlog wait too.
    fn make_room(&mut self, around: &mut Around<'_>) -> Result<(), Instant> {
        let strangers_max = self.limits.strangers_max;
        // In a flood of strangers the oldest is the least likely to greet yet. The job's id is no secret: those who
        // know only that must not keep members out either.
        let oldest = [&self.reception.strangers, &self.reception.greeted]
            .into_iter()
            .find(|among| among.len() >= strangers_max)
            .and_then(BTreeSet::first);
        let in_the_way = match oldest {
            None if self.table.connections.len() >= self.limits.connections_max => self
                .reception
                .strangers
                .first()
                .or(self.reception.greeted.first()),
            oldest => oldest,
        };
        in_the_way
            .copied()
            .map_or(Ok(()), |id| self.take_room_of(id, around))
    }

    /// Drops a connection that is not proven, unless it has had too little time for that.
    fn take_room_of(&mut self, id: ConnectionId, around: &mut Around<'_>) -> Result<(), Instant> {
        let deadline = self
            .table
            .connections
            .get(&id)
            .map(|connection| connection.deadline);
        let since = deadline.and_then(|deadline| deadline.checked_sub(self.limits.handshake_timeout));
        match since.map(|since| since + Self::SPARED_TIME) {
            Some(until) if around.now < until => Err(until),
            _ => {
                self.lose(id, PeerDeath::Closed, around);
                Ok(())
            }
        }
    }

    fn handle_accepted(&mut self, socket: OwnedFd, around: &mut Around<'_>) {
        if self.table.connections.len() >= self.limits.connections_max {
            return;
        }
        let Ok(nonce) = random_nonce() else {
            return;
        };
        let id = self.table.next_id();
        if self.watch(id, &socket, EventFlags::IN).is_err() {
            return;
        }
        self.table.made += 1;
        let handshake = Handshake::respond(self.introduction.clone(), nonce);
        let shares = self.shares(&self.introduction.peer.address);
        let connection = Connection::accepted(id, shares, socket, handshake, around.now, &self.limits);
        self.deadlines.insert((connection.deadline, id));
        self.reception.strangers.insert(id);
        self.table.connections.insert(id, connection);
    }

    /// Gives the next step of the handshake its own time: a side that was not driven for long is no stranger.
    pub(super) fn handle_greeted(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let accepted = self.reception.strangers.remove(&id);
        if accepted {
            self.reception.greeted.insert(id);
        }
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return;
        };
        self.deadlines.remove(&(connection.deadline, id));
        connection.deadline = around.now
            + if accepted {
                self.limits.handshake_timeout
            } else {
                self.limits.connect_timeout
            };
        self.deadlines.insert((connection.deadline, id));
    }

    pub(super) fn handle_proven(&mut self, id: ConnectionId, peer: Peer, around: &mut Around<'_>) {
        let instance = peer.instance;
        let accepted = |id: &ConnectionId| self.table.connections.get(id).is_some_and(|known| known.accepted);
        let known = self.table.peers.get(&around.intern(&peer.address));
        // A peer connects only when it has no connection with us: its latest one is its only one.
        let same_instance = known.filter(|known| known.instance == Some(instance) && accepted(&id));
        let other = same_instance.and_then(|known| known.ids.iter().copied().find(accepted));
        if let Some(other) = other {
            if other > id {
                self.close(id, &mut Vec::new());
                return;
            }
            self.lose(other, PeerDeath::Closed, around);
        } else if let Some(earlier) = known
            && earlier.instance.is_some_and(|known| known != instance)
            && let Some(&earlier) = earlier.ids.iter().find(|&&earlier| earlier != id)
        {
            self.take_from_peer(id);
            self.lose(earlier, PeerDeath::Replaced, around);
        }
        // Only now: if an earlier one was lost, its name went with it.
        let named = around.prove(peer);
        match self.table.peers.get_mut(&named) {
            Some(connections) => {
                connections.instance = Some(instance);
                if !connections.ids.contains(&id) {
                    connections.ids.push(id);
                }
            }
            None => self.table.peers.insert(
                named,
                Connections {
                    ids: vec![id],
                    instance: Some(instance),
                },
            ),
        }
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return;
        };
        self.reception.strangers.remove(&id);
        self.reception.greeted.remove(&id);
        self.deadlines.remove(&(connection.deadline, id));
        let address = around.peers.get(named).map(|known| known.address.clone());
        self.sendable.insert(id);
        let opened = connection.open(
            named,
            address,
            &mut Surroundings {
                transfers: &mut self.transfers,
                own_memory: self.own_memory.as_ref(),
                around,
            },
        );
        match opened {
            Ok(()) => {
                self.watch_bell(id, around);
                self.activate(id, around.now);
            }
            Err(cause) => self.lose(id, cause, around),
        }
    }

    /// Takes one connection out of its peer's list, so that it outlives the others.
    fn take_from_peer(&mut self, id: ConnectionId) {
        let peer = self
            .table
            .connections
            .get(&id)
            .and_then(|connection| connection.peer);
        if let Some(connections) = peer.and_then(|peer| self.table.peers.get_mut(&peer)) {
            connections.ids.retain(|&other| other != id);
        }
    }

    /// Closes a connection, and with it all others of its peer, ends what was in progress with the peer, and
    /// tells.
    pub(super) fn lose(&mut self, id: ConnectionId, cause: PeerDeath, around: &mut Around<'_>) {
        if let Some(connection) = self.table.connections.get_mut(&id) {
            connection.receive_last(around);
        }
        if self.hand_over(id, &cause, around.now) || self.redial_later(id, &cause) {
            return;
        }
        let mut lost = Vec::new();
        if let Some(peer) = self.close(id, &mut lost) {
            self.lose_peer(peer, lost, cause, around);
        }
    }

    /// Closes all connections of a peer, of which operations are `lost` already.
    pub(super) fn lose_peer(
        &mut self,
        peer: PeerId,
        mut lost: Vec<OperationId>,
        cause: PeerDeath,
        around: &mut Around<'_>,
    ) {
        let Some(connections) = self.table.peers.remove(&peer) else {
            return;
        };
        for other in connections.ids {
            // If both sides made a connection, this one may have brought more before the peer ended.
            if matches!(cause, PeerDeath::Closed | PeerDeath::Killed)
                && let Some(connection) = self.table.connections.get_mut(&other)
                && connection.is_open()
            {
                let _ = connection.receive(&mut Surroundings {
                    transfers: &mut self.transfers,
                    own_memory: self.own_memory.as_ref(),
                    around,
                });
                connection.receive_last(around);
            }
            self.close(other, &mut lost);
        }
        let direct = self.direct.take(peer);
        lost.extend(direct.into_iter().map(|transfer| transfer.operation));
        for operation in lost {
            around.handle_transferred(operation, Err(TransferFailure::PeerDied(cause.clone())));
        }
        around.handle_death(peer, cause);
    }

    /// Closes one connection, whose operations are then lost. Returns whose it was, if that was known.
    fn close(&mut self, id: ConnectionId, lost: &mut Vec<OperationId>) -> Option<PeerId> {
        let mut connection = self.table.connections.remove(&id)?;
        let before = lost.len();
        lost.extend(connection.frames.take_transfers());
        self.transfers -= lost.len() - before;
        self.reception.strangers.remove(&id);
        self.reception.greeted.remove(&id);
        self.sendable.remove(&id);
        self.attention.hot.retain(|&hot| hot != id);
        self.channels.active.retain(|&active| active != id);
        self.deadlines.remove(&(connection.deadline, id));
        // Closing is not enough if a child of this process has a copy of the descriptor.
        let _ = self.poller.delete(&connection.wire);
        // Nor is it of a bell, which the peer has too.
        if let Some(sharing) = connection.sharing.as_ref().filter(|sharing| sharing.bell_watched)
            && let Some(bell) = sharing.channel.bell()
        {
            let _ = self.poller.delete(bell);
        }
        let peer = connection.peer;
        self.keep_out(connection);
        peer
    }
}

fn random_nonce() -> Result<[u8; 32], Errno> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| Errno::IO)?;
    Ok(nonce)
}
