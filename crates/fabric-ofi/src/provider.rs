//! libfabric: endpoints at `ofi://PROVIDER/NAME`, where NAME is what libfabric calls the endpoint, in
//! hexadecimal digits.
//!
//! Of libfabric we use what all its providers share: endpoints of type RDM that send messages of bounded size
//! to each other. [`messaging`](crate::messaging) makes connections and one-sided operations of that.
//!
//! libfabric does not say when a peer dies. An endpoint that is dropped says farewell; for the others there
//! are heartbeats, and the errors of libfabric when it cannot deliver.
//!
//! The behaviour of libfabric's own providers is out of our hands: `sockets` starts a thread, and `shm`
//! handles signals and leaves a file in /dev/shm behind if it is killed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use ropewalk_fabric::{
    AccessError, Address, AddressError, Body, FrameError, Limits, OperationId, PeerDeath, PeerId,
    SubmitError,
    provider::{
        ACCESS_SIZE, Access, Activity, Around, Binding, HEADER_SIZE, Introduction, Link, Memory, MessageKind,
        OutgoingMessage, Provider, Ready, Receiver, RegionTable, Sleep, TransferFailure, Transferred, Work,
    },
};
use thiserror::Error;

use self::{
    connection::{Connection, ConnectionId},
    names::Names,
    opening::hexadecimal,
    rdm::{Ended, Rdm, Slot},
};
use crate::{
    messaging::{Envelope, Handled},
    sys::LoadError,
};

mod connection;
mod info;
mod names;
mod objects;
mod opening;
mod parked;
mod rdm;

/// Endpoints at `ofi://PROVIDER/NAME`.
///
/// With several connections to one peer it is as over TCP: a peer is reached over the first, the loss of one is the
/// death of the peer, a second one that it makes shows that it has lost the first.
pub(crate) struct OfiProvider {
    provider: String,
    introduction: Introduction,
    limits: Limits,
    rdm: Rdm,
    names: Names,
    connections: BTreeMap<ConnectionId, Connection>,
    peers: BTreeMap<PeerId, Connections>,
    unproven: Unproven,
    /// Peers of which libfabric knew at once that nobody is there. What is asked of them ends with their death, of
    /// which the next `progress` tells.
    refused: Vec<PeerId>,
    /// When a connection that is not open yet is given up.
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    outgoing: Outgoing,
    incoming: Incoming,
    next_age: u64,
    times: Times,
}

/// Connections of those that called and have not proven themselves, by age.
#[derive(Default)]
struct Unproven {
    /// They have not named the job yet.
    strangers: BTreeSet<(u64, ConnectionId)>,
    /// They have named the job.
    greeted: BTreeSet<(u64, ConnectionId)>,
}

/// Messages on their way out.
#[derive(Default)]
struct Outgoing {
    /// Connections that have something to send, in turn.
    sendable: VecDeque<ConnectionId>,
    /// Connections with a message that libfabric did not take, which has to be tried again.
    blocked: BTreeSet<ConnectionId>,
    /// Whose messages libfabric has, by their buffers.
    leaving: BTreeMap<usize, ConnectionId>,
}

/// Messages and buffers that libfabric gave back.
#[derive(Default)]
struct Incoming {
    /// Ends that were not looked at yet.
    ended: VecDeque<Ended>,
    /// Buffers that libfabric did not take back yet.
    unposted: Vec<Slot>,
    /// Empty; kept for its memory.
    polled: Vec<Ended>,
}

/// When things happened last.
struct Times {
    /// It was driven.
    driven: Instant,
    /// It was looked whether messages leave.
    looked: Instant,
    /// Something came, while more is expected at any moment.
    heard: Option<Instant>,
}

/// Why there is no endpoint of libfabric's.
#[derive(Debug, Error)]
pub(crate) enum OfiError {
    #[error("libfabric's {call} failed: {message}")]
    Call { call: &'static str, message: String },
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("libfabric has no provider {provider:?} for reliable messages in order here: {message}")]
    Unavailable { provider: String, message: String },
    #[error("the endpoint cannot sleep on libfabric's descriptor")]
    Watch(#[from] io::Error),
}

/// The endpoint around a connection, to which its frames are handed.
struct Arrivals<'a, 'b> {
    /// Who is at the other end, once that is proven.
    peer: Option<PeerId>,
    around: &'a mut Around<'b>,
}

impl<'a, 'b> Arrivals<'a, 'b> {
    fn of(peer: Option<&(PeerId, Address)>, around: &'a mut Around<'b>) -> Self {
        let peer = peer.map(|(peer, _)| *peer);
        Self { peer, around }
    }
}

impl Receiver for Arrivals<'_, '_> {
    fn regions(&mut self) -> &mut RegionTable {
        self.around.regions
    }

    fn handle_message(&mut self, kind: MessageKind, tag: u64, body: Body) -> Result<(), FrameError> {
        let from = self.peer.ok_or(FrameError::Unsolicited)?;
        self.around.handle_message(kind, from, tag, body);
        Ok(())
    }

    fn handle_transferred(&mut self, operation: OperationId, result: Result<Transferred, AccessError>) {
        let result = result.map_err(TransferFailure::Access);
        self.around.handle_transferred(operation, result);
    }
}

/// The connections with one peer, the one to send over first.
#[derive(Debug, Default)]
struct Connections {
    ids: Vec<ConnectionId>,
    /// The peer's instance, once it is known.
    instance: Option<u64>,
}

impl OfiProvider {
    /// The provider's name in addresses.
    pub(crate) const NAME: &str = "ofi";
    /// How often libfabric is asked for what has ended in one `progress`.
    const POLLS_MAX: usize = 16;
    /// For how long after something came more is expected at any moment.
    const HOT_TIME: Duration = Duration::from_micros(50);
    /// How long to sleep where libfabric cannot tell when there is something to do.
    const NAP: Duration = Duration::from_millis(1);
    /// How often it is looked within the limit of heartbeats whether messages leave.
    const LOOKS: u32 = 8;
    /// How long the last messages of an endpoint may take to leave.
    const FAREWELL_TIME: Duration = Duration::from_millis(100);

    /// Opens an endpoint of libfabric's provider of this name. Returns also the address at which peers reach it.
    pub(crate) fn open(
        provider: &str,
        binding: &Binding<'_>,
    ) -> Result<(Box<dyn Provider>, Address), OfiError> {
        let rdm = Rdm::open(provider, binding.options().bind)?;
        if let Some(descriptor) = rdm.descriptor() {
            binding.watch(descriptor)?;
        }
        let text = format!("{}://{provider}/{}", Self::NAME, hexadecimal(rdm.name()));
        let address: Address = text.parse().map_err(|error: AddressError| OfiError::Call {
            call: "fi_getname",
            message: error.to_string(),
        })?;
        let opened = Box::new(Self {
            provider: provider.to_owned(),
            introduction: binding.introduction(address.clone()),
            limits: binding.options().limits,
            rdm,
            names: Names::default(),
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            unproven: Unproven::default(),
            refused: Vec::new(),
            deadlines: BTreeSet::new(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            next_age: 0,
            times: Times {
                driven: Instant::now(),
                looked: Instant::now(),
                heard: None,
            },
        });
        Ok((opened, address))
    }

    /// The connection to send to `peer` over, if a frame with a body of this size may wait there.
    fn connection_with_room(
        &mut self,
        peer: PeerId,
        size: usize,
    ) -> Result<(ConnectionId, &mut Connection), SubmitError> {
        let connections = self.peers.get(&peer);
        let id = connections.and_then(|connections| connections.ids.first().copied());
        let id = id.ok_or(SubmitError::NotConnected)?;
        let connection = self.connections.get_mut(&id).ok_or(SubmitError::NotConnected)?;
        if connection.association.frames.queued_bytes() + HEADER_SIZE + size > self.limits.queued_bytes_max
            && let Some((_, address)) = &connection.peer
        {
            return Err(SubmitError::Busy {
                peer: address.clone(),
                limit: "queued_bytes_max",
            });
        }
        Ok((id, connection))
    }

    /// Lets a connection have its turn if it has something to send.
    fn queue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.is_queued
            && connection.is_sendable()
        {
            connection.is_queued = true;
            self.outgoing.sendable.push_back(id);
        }
    }

    /// Gives libfabric what it takes.
    fn flush(&mut self, around: &mut Around<'_>) {
        for id in std::mem::take(&mut self.outgoing.blocked) {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            if let Some((slot, length)) = connection.blocked.take() {
                self.send(id, slot, length, around);
                self.queue(id);
            }
        }
        for _ in 0..self.outgoing.sendable.len() {
            let Some(slot) = self.rdm.take() else {
                return;
            };
            let next = self.outgoing.sendable.pop_front();
            let Some((id, connection)) = next.and_then(|id| Some((id, self.connections.get_mut(&id)?)))
            else {
                self.rdm.release(slot);
                continue;
            };
            connection.is_queued = false;
            let filled = connection
                .association
                .fill(self.rdm.memory(&slot), around.regions);
            match filled {
                Some(length) => self.send(id, slot, length, around),
                None => self.rdm.release(slot),
            }
            self.queue(id);
        }
    }

    fn send(&mut self, id: ConnectionId, slot: Slot, length: usize, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return self.rdm.release(slot);
        };
        let index = slot.index();
        match self.rdm.send(slot, length, connection.remote) {
            Ok(()) => {
                connection.leaving += 1;
                self.outgoing.leaving.insert(index, id);
            }
            Err((slot, error)) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.blocked = Some((slot, length));
                self.outgoing.blocked.insert(id);
            }
            Err((slot, error)) => {
                self.rdm.release(slot);
                self.lose(id, PeerDeath::Io(Arc::new(error)), around);
            }
        }
    }

    /// Sees to what has ended, as far as there is room for what comes of it. Returns whether there was anything.
    fn handle_ended(&mut self, around: &mut Around<'_>) {
        while around.has_room()
            && let Some(ended) = self.incoming.ended.pop_front()
        {
            match ended {
                Ended::Received(slot, length) => {
                    self.times.heard = Some(around.now);
                    self.handle_received(&slot, length, around);
                    self.incoming.unposted.push(slot);
                }
                Ended::NotReceived(slot) => self.incoming.unposted.push(slot),
                Ended::Sent(slot, result) => self.handle_sent(slot, result, around),
            }
        }
        while let Some(slot) = self.incoming.unposted.pop() {
            if let Err(slot) = self.rdm.post(slot) {
                self.incoming.unposted.push(slot);
                break;
            }
        }
    }

    fn handle_sent(&mut self, slot: Slot, result: io::Result<()>, around: &mut Around<'_>) {
        let sender = self.outgoing.leaving.remove(&slot.index());
        self.rdm.release(slot);
        let Some((id, connection)) = sender.and_then(|id| Some((id, self.connections.get_mut(&id)?))) else {
            return;
        };
        connection.leaving -= 1;
        connection.left += 1;
        match result {
            Ok(()) => self.queue(id),
            Err(error) => self.lose(id, PeerDeath::Io(Arc::new(error)), around),
        }
    }

    fn handle_received(&mut self, slot: &Slot, length: usize, around: &mut Around<'_>) {
        // What comes to none of our associations is from nobody that we know.
        let Ok((envelope, content)) = Envelope::decode(&self.rdm.memory(slot)[..length]) else {
            return;
        };
        if envelope.association == 0 {
            let content = content.to_vec();
            return self.handle_stranger(envelope, &content, around);
        }
        let id = envelope.association;
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let mut arrivals = Arrivals::of(connection.peer.as_ref(), around);
        let handled = (connection.association).handle(&envelope, content, &mut arrivals);
        self.handle_handled(id, handled, around);
    }

    fn handle_association(
        &mut self,
        id: ConnectionId,
        envelope: &Envelope,
        content: &[u8],
        around: &mut Around<'_>,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let mut arrivals = Arrivals::of(connection.peer.as_ref(), around);
            let handled = (connection.association).handle(envelope, content, &mut arrivals);
            self.handle_handled(id, handled, around);
        }
    }

    fn handle_handled(
        &mut self,
        id: ConnectionId,
        handled: Result<Handled, PeerDeath>,
        around: &mut Around<'_>,
    ) {
        match handled {
            Ok(Handled::Frames) => {}
            Ok(Handled::Greeted) => self.handle_greeted(id, around),
            Ok(Handled::Proven(peer)) => self.handle_proven(id, peer, around),
            Err(cause) => self.lose(id, cause, around),
        }
        self.queue(id);
    }

    fn handle_deadlines(&mut self, around: &mut Around<'_>) {
        for peer in std::mem::take(&mut self.refused) {
            let cause = PeerDeath::Io(Arc::new(io::ErrorKind::ConnectionRefused.into()));
            self.lose_peer(peer, Vec::new(), cause, around);
        }
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= around.now
        {
            self.deadlines.pop_first();
            match self.connections.get(&id) {
                None => {}
                Some(connection) if connection.is_paused => self.redial(id, around.now),
                Some(connection) => {
                    let cause = connection.overdue();
                    self.lose(id, cause, around);
                }
            }
        }
        self.handle_stalled(around);
        self.names.purge(around.now, &mut self.rdm);
    }

    /// Gives up connections that do not get on with what they have to send: libfabric may try for ever, and the peer
    /// may have been there until a moment ago.
    fn handle_stalled(&mut self, around: &mut Around<'_>) {
        let Some(limit) = self.limits.heartbeat else {
            return;
        };
        let since = around.now.saturating_duration_since(self.times.looked);
        if since < limit / Self::LOOKS {
            return;
        }
        self.times.looked = around.now;
        // Who was not driven does not know what could have left.
        let missed = since > limit / Self::LOOKS * 3;
        let mut stalled = Vec::new();
        for (&id, connection) in &mut self.connections {
            if missed {
                connection.stalled = None;
            }
            let since = connection.look(around.now);
            if since.is_some_and(|since| around.now.saturating_duration_since(since) >= limit) {
                stalled.push(id);
            }
        }
        for id in stalled {
            self.lose(id, PeerDeath::Silent, around);
        }
    }

    /// Asks libfabric for what has ended, and sees to it.
    fn poll(&mut self, around: &mut Around<'_>) {
        for _ in 0..Self::POLLS_MAX {
            self.handle_ended(around);
            if !self.incoming.ended.is_empty() {
                return;
            }
            // A queue that is broken brings nothing; the deadlines tell.
            let more = self.rdm.poll(&mut self.incoming.polled).unwrap_or(false);
            self.incoming.ended.extend(self.incoming.polled.drain(..));
            if !more {
                break;
            }
        }
        self.handle_ended(around);
    }
}

impl Provider for OfiProvider {
    fn connect(&mut self, peer: PeerId, address: &Address, _: bool) -> Result<(), SubmitError> {
        if !self.peers.contains_key(&peer) {
            self.dial(peer, address)?;
        }
        Ok(())
    }

    fn link(&self, peer: PeerId) -> Option<Link> {
        self.peers.contains_key(&peer).then_some(Link {
            name: Self::NAME,
            is_reached: false,
        })
    }

    fn activity(&self, peer: PeerId) -> Activity {
        let connections = self.peers.get(&peer).into_iter();
        let ids = connections.flat_map(|connections| &connections.ids);
        let connections = ids.filter_map(|id| self.connections.get(id));
        connections
            .map(|connection| connection.association.activity())
            .sum()
    }

    fn disconnect(&mut self, peer: PeerId, cause: PeerDeath, around: &mut Around<'_>) {
        self.lose_peer(peer, Vec::new(), cause, around);
    }

    fn send(&mut self, peer: PeerId, message: OutgoingMessage<'_>) -> Result<(), SubmitError> {
        if self.refused.contains(&peer) {
            return Ok(());
        }
        let (id, connection) = self.connection_with_room(peer, message.size())?;
        connection.association.frames.send(message);
        self.queue(id);
        Ok(())
    }

    fn transfer(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        memory: Memory,
    ) -> Result<(), SubmitError> {
        if self.refused.contains(&peer) {
            return Ok(());
        }
        let (id, connection) = self.connection_with_room(peer, ACCESS_SIZE)?;
        (connection.association.frames).transfer(operation, &access, memory, false);
        self.queue(id);
        Ok(())
    }

    fn cancel(&mut self, operation: OperationId, peer: PeerId) {
        let connections = self.peers.get(&peer).into_iter();
        let ids: Vec<_> = connections.flat_map(|known| known.ids.clone()).collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id)
                && connection.association.frames.cancel(operation)
            {
                self.queue(id);
            }
        }
    }

    fn send_queued(&mut self, around: &mut Around<'_>) {
        self.times.driven = around.now;
        self.flush(around);
    }

    fn progress(&mut self, ready: Option<&Ready>, around: &mut Around<'_>) {
        let look = ready.is_some();
        // Without a descriptor it is memory that libfabric looks at, which costs little.
        if look || self.times.heard.is_some() || self.rdm.descriptor().is_none() {
            self.poll(around);
            self.flush(around);
        }
        if look {
            self.handle_deadlines(around);
        }
        let cold = |heard| around.now.saturating_duration_since(heard) > Self::HOT_TIME;
        self.times.heard = self.times.heard.filter(|&heard| !cold(heard));
    }

    fn has(&self, work: Work) -> bool {
        match work {
            Work::Hot => self.times.heard.is_some(),
            Work::Sendable => {
                !self.refused.is_empty() || (!self.outgoing.sendable.is_empty() && self.rdm.has_free())
            }
            Work::Transfers => false,
            Work::Unsent => {
                let unsent = |connection: &Connection| {
                    connection.peer.is_some()
                        && (connection.association.frames.has_unsent() || connection.leaving > 0)
                };
                !self.outgoing.blocked.is_empty() || self.connections.values().any(unsent)
            }
        }
    }

    fn arm(&mut self) -> Sleep {
        let has_ended =
            !self.incoming.ended.is_empty() || (self.rdm.descriptor().is_some() && !self.rdm.arm());
        if has_ended || self.has(Work::Sendable) {
            return Sleep::No;
        }
        let opening = self.deadlines.first().map(|&(deadline, _)| deadline);
        let asleep = self.rdm.descriptor().is_none()
            || !self.outgoing.blocked.is_empty()
            || !self.incoming.unposted.is_empty();
        let nap = asleep.then(|| self.times.driven + Self::NAP);
        let limit = self.limits.heartbeat.filter(|_| !self.connections.is_empty());
        let look = limit.map(|limit| self.times.looked + limit / Self::LOOKS);
        Sleep::Until(opening.into_iter().chain(nap).chain(look).min())
    }
}

impl Drop for OfiProvider {
    /// Says farewell, and lets what libfabric has leave.
    fn drop(&mut self) {
        let start = Instant::now();
        let mut connections = std::mem::take(&mut self.connections).into_values();
        while start.elapsed() < Self::FAREWELL_TIME {
            if let Some(mut connection) = self.rdm.has_free().then(|| connections.next()).flatten() {
                self.say_farewell(&mut connection);
            }
            let more = self.rdm.poll(&mut self.incoming.polled).unwrap_or(false);
            for ended in self.incoming.polled.drain(..) {
                if let Ended::Sent(slot, _) = ended {
                    self.rdm.release(slot);
                }
            }
            let waiting = self.rdm.leaving();
            if waiting == 0 && connections.len() == 0 && !more {
                break;
            }
        }
    }
}
