//! The work of one turn: sockets that are ready, channels that are looked into, memory that is copied.

use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::{
    ConnectionId, StreamProvider, Table,
    connection::{Connection, Handled},
    socket::Family,
};
use crate::{
    EndpointOptions, Messages, OperationId, PeerDeath, PeerId, SubmitError, Withdrawn,
    arena::Arena,
    dense_map::DenseMap,
    frame::ACCESS_SIZE,
    inbox::Around,
    peer_table::Known,
    poller::{Ready, Source},
    provider::{
        Memory, TransferFailure, Transferred,
        shm::{Ended, OwnMemory, Writer},
    },
    region_table::Access,
};

/// The memory that an endpoint shows its peers on this host. Without it, or without an arena in it, all works, only
/// slower.
pub(super) fn own_memory(options: &EndpointOptions) -> Option<OwnMemory> {
    let arena = match options.limits.arena_size {
        0 => None,
        size => Arena::create(size).ok(),
    };
    OwnMemory::new(arena, options.transports.process_vm).ok()
}

impl StreamProvider {
    /// For how long a channel is looked into after it was last of use; afterwards its doorbell has to be rung.
    const ACTIVE_TIME: Duration = Duration::from_millis(10);
    /// How often all processes that are waited for are looked at.
    const LIVENESS_INTERVAL: Duration = Duration::from_millis(1);
    /// How often it is looked whether peers that were let go are gone.
    pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(100);
    /// How much is copied before messages have their turn, in bytes.
    const COPIED_PER_TURN: usize = 4 << 20;
    /// How many operations are ended by copying before messages have their turn.
    const ENDED_PER_TURN: usize = 256;

    /// Sees to the connections that are ready, and to all whose time has come.
    pub(super) fn look(&mut self, ready: &Ready, around: &mut Around<'_>) {
        let source = self.family.source();
        let count = ready.of(source).count();
        let first = self.attention.turn.checked_rem(count).unwrap_or(0);
        self.attention.turn = first + 1;
        if self.family == Family::Unix {
            // Whoever finds no room stays one that is looked into.
            for (key, _) in ready.of(Source::Bell) {
                self.is_roused(ConnectionId(key), around);
            }
        }
        let mut crowded = false;
        let in_turn = ready.of(source).skip(first).chain(ready.of(source).take(first));
        for (index, (key, flags)) in in_turn.enumerate() {
            // Who finds no room is first the next time: so none can use it up for ever.
            if index > 0 && !crowded && !around.has_room() {
                crowded = true;
                self.attention.turn = first + index;
            }
            match key {
                Self::LISTENER => self.accept(around),
                id => self.handle_ready(ConnectionId(id), flags, around),
            }
        }
        if self.family == Family::Unix {
            self.cool(around.now);
            self.look_for_deaths(around);
            self.sweep();
        }
        self.handle_deadlines(around);
    }

    /// Does what the poller said is possible on one connection.
    fn handle_ready(&mut self, id: ConnectionId, flags: EventFlags, around: &mut Around<'_>) {
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return;
        };
        let mut result = Ok(Handled::Frames);
        if flags.contains(EventFlags::OUT) {
            result = connection.handle_writable();
            around.inbox.moved |= connection.is_open();
            self.sendable.insert(id);
            let mut wanted = EventFlags::IN;
            wanted.set(EventFlags::OUT, connection.is_connecting());
            // If it fails the socket stays watched for more than is needed, and costs a look each time.
            let _ = self.poller.modify(id.0, &connection.wire, wanted);
        }
        let readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if readable && matches!(result, Ok(Handled::Frames)) {
            // Somebody waits for the answer to what the doorbell was rung for. The poller tells of the doorbell again,
            // and then it is read.
            if flags == EventFlags::IN && self.is_roused(id, around) {
                return;
            }
            self.receive(id, around);
        } else {
            self.handle_handled(id, result, around);
        }
    }

    /// Looks into the channel of a connection from now on.
    pub(super) fn activate(&mut self, id: ConnectionId, now: Instant) {
        if let Some(sharing) = self.table.sharing(id) {
            sharing.channel.wake();
            sharing.used = now;
            if !std::mem::replace(&mut sharing.active, true) {
                self.channels.active.push(id);
            }
        }
    }

    /// Hears the bell of a connection from now on, if it has one.
    pub(super) fn watch_bell(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let sharing = self.table.sharing(id);
        let Some(sharing) = sharing.filter(|sharing| !sharing.bell_watched) else {
            return;
        };
        let Some(bell) = sharing.channel.bell() else {
            return;
        };
        let watched = self
            .poller
            .of(Source::Bell)
            .add(id.0, bell, EventFlags::IN | EventFlags::ET);
        sharing.bell_watched = watched.is_ok();
        if let Err(errno) = watched {
            self.lose(id, errno.into(), around);
        }
    }

    /// Looks into a channel that was left alone until now. Returns whether there was something.
    pub(super) fn is_roused(&mut self, id: ConnectionId, around: &mut Around<'_>) -> bool {
        let seen = |connections: &DenseMap<_, Connection>| {
            let connection = connections.get(&id)?;
            let sharing = connection.sharing.as_ref().filter(|_| connection.is_open())?;
            let channel = &sharing.channel;
            Some((channel.pieces_received(), channel.is_ready(), sharing.active))
        };
        let Some((before, _, false)) = seen(&self.table.connections) else {
            return false;
        };
        self.activate(id, around.now);
        self.exchange(id, around);
        // What is not taken here is there still.
        let roused = seen(&self.table.connections).is_none_or(|(after, ready, _)| ready || after != before);
        around.inbox.moved |= roused;
        roused
    }

    /// Sends and receives what is possible over all channels that are looked into.
    pub(super) fn exchange_all(&mut self, around: &mut Around<'_>) {
        self.channels.unannounced = false;
        let first = self.channels.turn;
        self.channels.turn = first.wrapping_add(1);
        let mut crowded = false;
        for index in 0..self.channels.active.len() {
            // A peer that is lost takes its connections out; whom that makes us pass over has his turn next time.
            let Some(at) = first.wrapping_add(index).checked_rem(self.channels.active.len()) else {
                return;
            };
            // Who finds no room is first the next time: so none can use it up for ever.
            if index > 0 && !crowded && !around.has_room() {
                crowded = true;
                self.channels.turn = at;
            }
            self.exchange(self.channels.active[at], around);
        }
    }

    /// Sends and receives what is possible over one channel.
    pub(super) fn exchange(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let Some(connection) = self.table.connections.get_mut(&id) else {
            return;
        };
        let Connection {
            peer: Some(peer),
            frames,
            sharing: Some(sharing),
            ..
        } = connection
        else {
            return;
        };
        let result = sharing.exchange(*peer, frames, around);
        if frames.has_unsent() {
            self.sendable.insert(id);
        }
        if let Err(cause) = result {
            self.lose(id, cause, around);
        }
    }

    /// Receives from the channels that are looked into as far as there is room; see
    /// [`SharedMemory::receive`](crate::provider::SharedMemory::receive).
    pub(super) fn receive_from_channels(&mut self, around: &mut Around<'_>, messages: &mut Messages) {
        // One after the other, so that none can use up all room for ever.
        for _ in 0..self.channels.active.len() {
            if self.channels.receiving >= self.channels.active.len() {
                self.channels.receiving = 0;
            }
            let Some(&id) = self.channels.active.get(self.channels.receiving) else {
                return;
            };
            let Some(connection) = self.table.connections.get_mut(&id) else {
                continue;
            };
            let result = match (connection.peer, &mut connection.sharing) {
                (Some(peer), Some(sharing)) => sharing.receive_messages(peer, around, messages),
                _ => Ok(()),
            };
            // The space that they leave may be waited for.
            self.channels.unannounced |= !messages.is_empty();
            if let Err(cause) = result {
                return self.lose(id, cause, around);
            }
            self.channels.receiving += 1;
            if messages.room().is_none() {
                return;
            }
        }
    }

    /// Leaves channels alone that were not of use for long.
    pub(super) fn cool(&mut self, now: Instant) {
        self.channels.active.retain(|id| {
            let connection = self.table.connections.get_mut(id);
            connection
                .and_then(|known| known.sharing.as_mut())
                .is_some_and(|sharing| {
                    let idle = now.saturating_duration_since(sharing.used) > Self::ACTIVE_TIME;
                    !(idle && sharing.sleep())
                })
        });
    }

    /// Asks for the doorbell of each channel. Returns whether there is something to do in one of them already.
    pub(super) fn arm_channels(&mut self) -> bool {
        if self.channels.unannounced {
            return true;
        }
        self.channels.active.retain(|id| {
            let connection = self.table.connections.get_mut(id);
            let sharing = connection.and_then(|known| known.sharing.as_mut());
            sharing.is_some_and(|sharing| !sharing.sleep())
        });
        !self.channels.active.is_empty()
    }

    /// Looks for processes that died, among those that are waited for.
    pub(super) fn look_for_deaths(&mut self, around: &mut Around<'_>) {
        let next = self
            .channels
            .looked
            .map(|latest| latest + Self::LIVENESS_INTERVAL);
        if next.is_some_and(|next| around.now < next) {
            return;
        }
        self.channels.looked = Some(around.now);
        // A server of many clients waits for nobody.
        if around.inbox.operations.len() == 0 && !around.peers.is_any_watched() {
            return;
        }
        let mut dead = Vec::new();
        for (id, connection) in self.table.connections.iter_mut() {
            let known = connection.peer.and_then(|peer| around.peers.get(peer));
            if known.is_some_and(Known::is_awaited)
                && let Some(sharing) = &mut connection.sharing
                && sharing.channel.is_peer_dead(around.now)
            {
                dead.push(id);
            }
        }
        for id in dead {
            self.lose(id, PeerDeath::Killed, around);
        }
    }

    /// Starts a `get` or `put`.
    pub(super) fn start(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: Access,
        memory: Memory,
    ) -> Result<(), SubmitError> {
        let connections = self.table.peers.get(&peer).ok_or(SubmitError::NotConnected)?;
        let reaches = |id| {
            let sharing = self
                .table
                .connections
                .get(id)
                .and_then(|known| known.sharing.as_ref());
            sharing.is_some_and(|sharing| sharing.memory.is_some())
        };
        if connections.ids.iter().any(reaches) {
            self.direct.push(operation, peer, access, memory);
            return Ok(());
        }
        self.connection_with_room(peer, ACCESS_SIZE)?;
        self.request(operation, peer, &access, memory)
    }

    /// Asks the peer for a transfer.
    fn request(
        &mut self,
        operation: OperationId,
        peer: PeerId,
        access: &Access,
        memory: Memory,
    ) -> Result<(), SubmitError> {
        let checked = self.bulk_checksum;
        let connection = self.table.connection_to(peer)?;
        connection.frames.transfer(operation, access, memory, checked);
        self.sendable.insert(connection.id);
        self.transfers += 1;
        Ok(())
    }

    /// Copies what can be copied, for one turn.
    pub(super) fn copy_directly(&mut self, around: &mut Around<'_>) {
        // Messages may take all the room there is again and again: it is not needed for our own operations, of which
        // there is a limited number.
        let (mut copied, mut done) = (0, 0);
        while copied < Self::COPIED_PER_TURN && done < Self::ENDED_PER_TURN {
            let Table {
                peers, connections, ..
            } = &mut self.table;
            let advanced = self.direct.advance(|peer| {
                let ids = &peers.get(&peer)?.ids;
                let reaches = |id: &_| {
                    let sharing = connections.get(id).and_then(|known| known.sharing.as_ref());
                    sharing.is_some_and(|sharing| sharing.memory.is_some())
                };
                let id = ids.iter().copied().find(reaches)?;
                connections.get_mut(&id)?.sharing.as_mut()?.reached()
            });
            let Some((count, ended)) = advanced else {
                return;
            };
            copied += count;
            done += usize::from(ended.is_some());
            match ended {
                None => {}
                Some(Ended::Done(transfer)) => {
                    let result = match transfer.memory {
                        Memory::Into(buffer) => Transferred::Got(buffer),
                        Memory::From(_) => Transferred::Put,
                    };
                    around.handle_transferred(transfer.operation, Ok(result));
                }
                Some(Ended::Refused(transfer, error)) => {
                    around.handle_transferred(transfer.operation, Err(TransferFailure::Access(error)));
                }
                Some(Ended::NotDirect(transfer)) => {
                    // It was let in already, so that no limit stops it.
                    let asked = self.request(
                        transfer.operation,
                        transfer.peer,
                        &transfer.access,
                        transfer.memory,
                    );
                    debug_assert!(asked.is_ok(), "a lost peer's operations are ended with it");
                }
            }
        }
    }

    /// Gives memory back that is no longer exposed, or a copy if a peer may be writing it still.
    pub(super) fn take_back(&mut self, region: u64, memory: Withdrawn) -> Withdrawn {
        let Some(own) = &mut self.own_memory else {
            return memory;
        };
        match memory {
            Withdrawn::Immutable(_) => {
                own.withdraw(region);
                memory
            }
            Withdrawn::Writable(buffer) => {
                let writers = self.table.connections.values().filter_map(|connection| {
                    let [_, word] = connection.sharing.as_ref()?.channel.writing_words()?;
                    let socket = &connection.wire.socket;
                    Some(Writer { word, socket })
                });
                Withdrawn::Writable(own.withdraw_writable(region, buffer, writers))
            }
        }
    }

    /// Lets go of a connection, but not of the peer's word if it may be writing our memory still.
    pub(super) fn keep_out(&mut self, connection: Connection) {
        if let Some(own) = &mut self.own_memory
            && let Some(sharing) = connection.sharing
            && let Some([_, word]) = sharing.channel.writing_words()
        {
            own.handle_closed(word.clone(), connection.wire.socket);
        }
    }

    /// True if [`sweep`](Self::sweep) has something to look for.
    pub(super) fn is_swept(&self) -> bool {
        self.own_memory.as_ref().is_some_and(OwnMemory::is_swept)
    }

    /// Frees what peers that were let go have left.
    pub(super) fn sweep(&mut self) {
        if let Some(own) = &mut self.own_memory
            && own.is_swept()
        {
            own.sweep();
        }
    }
}
