//! How connections come to be and end.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::{
    Address, OperationId, Peer, PeerDeath, PeerId, SubmitError,
    provider::{Around, TransferFailure},
};

use super::{
    Arrivals, Connections, OfiProvider,
    connection::{Connection, ConnectionId},
    rdm::Remote,
};
use crate::messaging::{Association, Envelope, EnvelopeKind, Opening};

impl OfiProvider {
    /// How long to wait before each further call to one whom libfabric could not reach.
    const REDIAL_PAUSES: [Duration; 3] = [
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(250),
    ];

    /// The name at libfabric that an address stands for; `None` if it is none of this provider.
    pub(super) fn locate(&self, address: &Address) -> Option<Vec<u8>> {
        let (provider, name) = address.location().rsplit_once('/')?;
        if address.provider() != Self::NAME || provider != self.provider {
            return None;
        }
        from_hexadecimal(name)
    }

    pub(super) fn dial(&mut self, peer: PeerId, address: &Address) -> Result<(), SubmitError> {
        let name = self.locate(address).ok_or_else(|| SubmitError::Unreachable {
            address: address.clone(),
            expected: "ofi://PROVIDER/NAME of the same provider",
        })?;
        if self.connections.len() >= self.limits.connections_max {
            return Err(SubmitError::Busy {
                peer: address.clone(),
                limit: "connections_max",
            });
        }
        let failed = |error: io::Error| SubmitError::Connect {
            peer: address.clone(),
            source: Arc::new(error),
        };
        let (id, nonce) = self.draw().map_err(failed)?;
        // libfabric may know at once that nobody is there. It is told like what takes time to be known.
        let (remote, deadline) = match self.names.resolve(&name, &mut self.rdm) {
            Ok(remote) => (Some(remote), Instant::now() + self.limits.connect_timeout),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => (None, Instant::now()),
            Err(error) => return Err(failed(error)),
        };
        let Some(remote) = remote else {
            self.refused.push(peer);
            self.peers.insert(peer, Connections::default());
            return Ok(());
        };
        let own = Opening {
            association: id,
            name: self.rdm.name(),
        };
        let introduction = self.introduction.clone();
        let association = Association::call(introduction, address.clone(), &own, nonce, &self.limits);
        let peer_name = Some((peer, address.clone()));
        self.insert(id, association, &name, remote, peer_name, deadline);
        let connections = Connections {
            ids: vec![id],
            instance: None,
        };
        self.peers.insert(peer, connections);
        Ok(())
    }

    /// Takes the first message of somebody who calls.
    pub(super) fn handle_stranger(&mut self, envelope: Envelope, content: &[u8], around: &mut Around<'_>) {
        let Ok((opening, _)) = Opening::decode(content) else {
            return;
        };
        if envelope.kind != EnvelopeKind::Data || envelope.sequence != 0 {
            return;
        }
        if self.connections.len() >= self.limits.connections_max {
            let unproven = self
                .unproven
                .strangers
                .iter()
                .chain(&self.unproven.greeted)
                .next();
            let Some(&(_, unproven)) = unproven else {
                return;
            };
            self.lose(unproven, PeerDeath::Closed, around);
        }
        // A peer greets with its first message already: in a flood the oldest is the least likely to be one.
        if self.unproven.strangers.len() >= self.strangers_max()
            && let Some(&(_, oldest)) = self.unproven.strangers.first()
        {
            self.lose(oldest, PeerDeath::Closed, around);
        }
        let Ok((id, nonce)) = self.draw() else {
            return;
        };
        let Ok(remote) = self.names.resolve(opening.name, &mut self.rdm) else {
            return;
        };
        let introduction = self.introduction.clone();
        let association = Association::answer(introduction, opening.association, id, nonce, &self.limits);
        let deadline = around.now + self.limits.handshake_timeout;
        self.unproven.strangers.insert((self.next_age, id));
        self.insert(id, association, opening.name, remote, None, deadline);
        self.handle_association(id, &envelope, content, around);
    }

    fn insert(
        &mut self,
        id: ConnectionId,
        association: Association,
        name: &[u8],
        remote: Remote,
        peer: Option<(PeerId, Address)>,
        deadline: Instant,
    ) {
        let connection = Connection {
            association,
            name: name.into(),
            remote,
            accepted: peer.is_none(),
            peer,
            age: self.next_age,
            deadline,
            blocked: None,
            leaving: 0,
            left: 0,
            stalled: None,
            redials: 0,
            is_paused: false,
            is_beyond_reach: false,
            is_queued: false,
        };
        self.next_age += 1;
        self.deadlines.insert((deadline, id));
        self.connections.insert(id, connection);
        self.queue(id);
    }

    /// Gives the next step of the handshake its own time: a side that was not driven for long is no stranger.
    pub(super) fn handle_greeted(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let age = connection.age;
        self.deadlines.remove(&(connection.deadline, id));
        connection.deadline = around.now
            + match connection.accepted {
                true => self.limits.handshake_timeout,
                false => self.limits.connect_timeout,
            };
        self.deadlines.insert((connection.deadline, id));
        if self.unproven.strangers.remove(&(age, id)) {
            // The job's id is no secret: whoever knows only that must not keep members out either.
            if self.unproven.greeted.len() >= self.strangers_max()
                && let Some(&(_, oldest)) = self.unproven.greeted.first()
            {
                self.lose(oldest, PeerDeath::Closed, around);
            }
            self.unproven.greeted.insert((age, id));
        }
    }

    /// There is no backlog in which callers wait for room, as when all processes of a job start at once:
    /// there must be room for more.
    fn strangers_max(&self) -> usize {
        4 * self.limits.strangers_max
    }

    pub(super) fn handle_proven(&mut self, id: ConnectionId, peer: Peer, around: &mut Around<'_>) {
        let instance = peer.instance;
        let accepted = |id: &ConnectionId| self.connections.get(id).filter(|known| known.accepted);
        let known = self.peers.get(&around.intern(&peer.address));
        // A peer calls only when it has no connection with us: its latest one is its only one.
        let same_instance = known.filter(|known| known.instance == Some(instance) && accepted(&id).is_some());
        let other = same_instance.and_then(|known| {
            let earlier = known.ids.iter().copied();
            earlier
                .filter(|other| *other != id)
                .find(|other| accepted(other).is_some())
        });
        if let Some(other) = other {
            let age = |id: &ConnectionId| self.connections.get(id).map(|known| known.age);
            if age(&other) > age(&id) {
                self.close(id, &mut Vec::new(), around.now);
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
        let address = peer.address.clone();
        // Only now: if an earlier one was lost, its name went with it.
        let named = around.prove(peer);
        let connections = self.peers.entry(named).or_default();
        connections.instance = Some(instance);
        if !connections.ids.contains(&id) {
            connections.ids.push(id);
        }
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        self.unproven.strangers.remove(&(connection.age, id));
        self.unproven.greeted.remove(&(connection.age, id));
        self.deadlines.remove(&(connection.deadline, id));
        connection.peer = Some((named, address));
        // Its first frames may have come with the end of the handshake.
        let mut arrivals = Arrivals::of(connection.peer.as_ref(), around);
        match connection.association.open(&mut arrivals) {
            Ok(()) => self.queue(id),
            Err(cause) => self.lose(id, cause, around),
        }
    }

    /// Takes one connection out of its peer's list, so that it outlives the others.
    fn take_from_peer(&mut self, id: ConnectionId) {
        let peer = self.connections.get(&id).and_then(|known| known.peer.as_ref());
        if let Some(connections) = peer.and_then(|(peer, _)| self.peers.get_mut(peer)) {
            connections.ids.retain(|&other| other != id);
        }
    }

    /// Closes a connection, and with it all others of its peer, ends what was in progress with the peer, and
    /// tells.
    pub(super) fn lose(&mut self, id: ConnectionId, cause: PeerDeath, around: &mut Around<'_>) {
        if self.redial_later(id, &cause, around.now) {
            return;
        }
        let mut lost = Vec::new();
        if let Some(peer) = self.close(id, &mut lost, around.now) {
            self.lose_peer(peer, lost, cause, around);
        }
    }

    /// Sees to it that one whom libfabric could not reach is called again: it may have kept what it knows of an
    /// earlier endpoint of this name. Returns whether it is.
    fn redial_later(&mut self, id: ConnectionId, cause: &PeerDeath, now: Instant) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let unreached = matches!(cause, PeerDeath::Io(_)) && !connection.association.was_heard();
        let Some(&pause) = Self::REDIAL_PAUSES.get(connection.redials) else {
            return false;
        };
        if !unreached || connection.accepted {
            return false;
        }
        if connection.is_paused {
            return true;
        }
        connection.is_paused = true;
        connection.redials += 1;
        self.deadlines.remove(&(connection.deadline, id));
        connection.deadline = now + pause;
        self.deadlines.insert((connection.deadline, id));
        true
    }

    /// Calls again after the pause.
    pub(super) fn redial(&mut self, id: ConnectionId, now: Instant) {
        let Ok((_, nonce)) = self.draw() else {
            return;
        };
        let own = Opening {
            association: id,
            name: self.rdm.name(),
        };
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some((_, address)) = &connection.peer {
            let introduction = self.introduction.clone();
            (connection.association).call_again(introduction, address.clone(), &own, nonce);
        }
        connection.is_paused = false;
        connection.deadline = now + self.limits.connect_timeout;
        self.deadlines.insert((connection.deadline, id));
        self.queue(id);
    }

    /// Closes all connections of a peer, of which operations are `lost` already.
    pub(super) fn lose_peer(
        &mut self,
        peer: PeerId,
        mut lost: Vec<OperationId>,
        cause: PeerDeath,
        around: &mut Around<'_>,
    ) {
        let Some(connections) = self.peers.remove(&peer) else {
            return;
        };
        let is_farewell_risky = matches!(cause, PeerDeath::Silent) && self.rdm.may_hang_on_the_dead();
        for other in connections.ids {
            if is_farewell_risky && let Some(connection) = self.connections.get_mut(&other) {
                connection.is_beyond_reach = true;
            }
            self.close(other, &mut lost, around.now);
        }
        for operation in lost {
            around.handle_transferred(operation, Err(TransferFailure::PeerDied(cause.clone())));
        }
        around.handle_death(peer, cause);
    }

    /// Closes one connection, whose operations are then lost. Returns whose it was, if that was known.
    fn close(&mut self, id: ConnectionId, lost: &mut Vec<OperationId>, now: Instant) -> Option<PeerId> {
        let mut connection = self.connections.remove(&id)?;
        lost.extend(connection.association.frames.take_transfers());
        self.unproven.strangers.remove(&(connection.age, id));
        self.unproven.greeted.remove(&(connection.age, id));
        self.deadlines.remove(&(connection.deadline, id));
        self.outgoing.blocked.remove(&id);
        self.say_farewell(&mut connection);
        self.names.release(&connection.name, now);
        connection.peer.map(|(peer, _)| peer)
    }

    /// Tells the peer that its connection has ended, if libfabric takes the message at once.
    pub(super) fn say_farewell(&mut self, connection: &mut Connection) {
        if connection.is_beyond_reach {
            if let Some((slot, _)) = connection.blocked.take() {
                self.rdm.release(slot);
            }
            return;
        }
        if let Some((slot, length)) = connection.blocked.take()
            && let Err((slot, _)) = self.rdm.send(slot, length, connection.remote)
        {
            self.rdm.release(slot);
            return;
        }
        let Some(mut slot) = self.rdm.take() else {
            return;
        };
        if let Some(length) = connection.association.fill_refusal(self.rdm.memory(&slot)) {
            slot = match self.rdm.send(slot, length, connection.remote) {
                Err((slot, _)) => slot,
                Ok(()) => match self.rdm.take() {
                    Some(next) => next,
                    None => return,
                },
            };
        }
        let Some(farewell) = connection.association.farewell() else {
            return self.rdm.release(slot);
        };
        self.rdm.memory(&slot)[..farewell.len()].copy_from_slice(&farewell);
        if let Err((slot, _)) = self.rdm.send(slot, farewell.len(), connection.remote) {
            self.rdm.release(slot);
        }
    }

    /// A number for a connection and a nonce for its handshake.
    fn draw(&self) -> io::Result<(ConnectionId, [u8; 32])> {
        let (mut id, mut nonce) = ([0; 8], [0; 32]);
        for random in [&mut id[..], &mut nonce[..]] {
            getrandom::fill(random).map_err(io::Error::other)?;
        }
        let id = ConnectionId::from_le_bytes(id);
        if id == 0 || self.connections.contains_key(&id) {
            return self.draw();
        }
        Ok((id, nonce))
    }
}

/// The address of an endpoint that libfabric names so.
pub(super) fn hexadecimal(name: &[u8]) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = pairs
        .iter()
        .map(|&[high, low]| Some(16 * digit(high)? + digit(low)?));
    bytes
        .collect::<Option<Vec<_>>>()
        .filter(|name| !name.is_empty() && name.len() <= Opening::NAME_SIZE_MAX)
}
