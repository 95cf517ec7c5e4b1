//! What a connection between two processes of one host has besides its socket: messages go through shared memory, and
//! each end has a bell. Where there are no descriptors for those, the socket is the doorbell.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rustix::{
    cmsg_space,
    event::epoll::EventFlags,
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg,
    },
};

use super::{ConnectionId, StreamProvider, connection::Connection};
use crate::{
    Body, FrameError, Messages, PeerDeath, PeerId,
    dense_map::DenseMap,
    frame::{Header, Kind},
    inbox::Around,
    peer_table::Known,
    poller::Source,
    provider::shm::{Channel, Credentials, DESCRIPTORS_MAX, Offer, OwnMemory, PeerMemory},
};

impl StreamProvider {
    /// For how long a channel is looked into after it was last of use; afterwards its doorbell has to be rung.
    const ACTIVE_TIME: Duration = Duration::from_millis(10);
    /// How often all processes that are waited for are looked at.
    const LIVENESS_INTERVAL: Duration = Duration::from_millis(1);

    /// Looks into the channel of a connection from now on.
    pub(super) fn activate(&mut self, id: ConnectionId, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&id)
            && let Some(channel) = &mut connection.channel
        {
            channel.wake();
            connection.used = now;
            if !connection.active {
                connection.active = true;
                self.active.push(id);
            }
        }
    }

    /// Hears the bell of a connection from now on, if it has one.
    pub(super) fn watch_bell(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let Some(bell) = connection.channel.as_ref().and_then(Channel::bell) else {
            return;
        };
        if std::mem::replace(&mut connection.bell_watched, true) {
            return;
        }
        let flags = EventFlags::IN | EventFlags::ET;
        if let Err(errno) = self.poller.of(Source::Bell).add(id.0, bell, flags) {
            connection.bell_watched = false;
            self.lose(id, errno.into(), around);
        }
    }

    /// Looks into a channel that was left alone until now. Returns whether there was something.
    pub(super) fn is_roused(&mut self, id: ConnectionId, around: &mut Around<'_>) -> bool {
        let seen = |connections: &DenseMap<_, Connection>| {
            let connection = connections.get(&id)?;
            let channel = connection.channel.as_ref().filter(|_| connection.is_open())?;
            Some((channel.pieces_received(), channel.is_ready(), connection.active))
        };
        let Some((before, _, false)) = seen(&self.connections) else {
            return false;
        };
        self.activate(id, around.now);
        self.exchange(id, around);
        // What is not taken here is there still.
        let roused = seen(&self.connections).is_none_or(|(after, ready, _)| ready || after != before);
        around.inbox.moved |= roused;
        roused
    }

    /// Sends and receives what is possible over all channels that are looked into.
    pub(super) fn exchange_all(&mut self, around: &mut Around<'_>) {
        self.unannounced = false;
        let first = self.exchange_turn;
        self.exchange_turn = first.wrapping_add(1);
        let mut crowded = false;
        for index in 0..self.active.len() {
            // A peer that is lost takes its connections out; whom that makes us pass over has his turn next time.
            let Some(at) = first.wrapping_add(index).checked_rem(self.active.len()) else {
                return;
            };
            // Who finds no room is first the next time: so none can use it up for ever.
            if index > 0 && !crowded && !around.has_room() {
                crowded = true;
                self.exchange_turn = at;
            }
            self.exchange(self.active[at], around);
        }
    }

    /// Sends and receives what is possible over one channel.
    pub(super) fn exchange(&mut self, id: ConnectionId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let result = connection.exchange(around);
        if !connection.outbox.is_empty() {
            self.sendable.insert(id);
        }
        if let Err(cause) = result {
            self.lose(id, cause, around);
        }
    }

    /// Receives from the channels that are looked into as far as there is room; see
    /// [`SharedMemory::receive`](super::SharedMemory::receive).
    pub(super) fn receive_from_channels(&mut self, around: &mut Around<'_>, messages: &mut Messages) {
        // One after the other, so that none can use up all room for ever.
        for _ in 0..self.active.len() {
            if self.receiving >= self.active.len() {
                self.receiving = 0;
            }
            let Some(&id) = self.active.get(self.receiving) else {
                return;
            };
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            let result = connection.receive_messages(around, messages);
            // The space that they leave may be waited for.
            self.unannounced |= !messages.is_empty();
            if let Err(cause) = result {
                return self.lose(id, cause, around);
            }
            self.receiving += 1;
            if messages.room().is_none() {
                return;
            }
        }
    }

    /// Leaves channels alone that were not of use for long.
    pub(super) fn cool(&mut self, now: Instant) {
        self.active.retain(|id| {
            let Some(connection) = self.connections.get_mut(id) else {
                return false;
            };
            let idle = now.saturating_duration_since(connection.used) > Self::ACTIVE_TIME;
            !(idle && connection.sleep())
        });
    }

    /// Asks for the doorbell of each channel. Returns whether there is something to do in one of them already.
    pub(super) fn arm_channels(&mut self) -> bool {
        if self.unannounced {
            return true;
        }
        self.active.retain(|id| {
            let connection = self.connections.get_mut(id);
            connection.is_some_and(|connection| !connection.sleep())
        });
        !self.active.is_empty()
    }

    /// Looks for processes that died, among those that are waited for.
    pub(super) fn look_for_deaths(&mut self, around: &mut Around<'_>) {
        let next = self
            .deaths_looked_for
            .map(|latest| latest + Self::LIVENESS_INTERVAL);
        if next.is_some_and(|next| around.now < next) {
            return;
        }
        self.deaths_looked_for = Some(around.now);
        // A server of many clients waits for nobody.
        if around.inbox.operations.len() == 0 && !around.peers.is_any_watched() {
            return;
        }
        let mut dead = Vec::new();
        for (id, connection) in self.connections.iter_mut() {
            let known = connection.peer.and_then(|peer| around.peers.get(peer));
            if known.is_some_and(Known::is_awaited)
                && let Some(channel) = &mut connection.channel
                && channel.is_peer_dead(around.now)
            {
                dead.push(id);
            }
        }
        for id in dead {
            self.lose(id, PeerDeath::Killed, around);
        }
    }
}

impl Connection {
    /// Tells what memory is shared with the other end, as the first thing after the handshake. Nothing of that is
    /// needed if there is no channel.
    pub(super) fn offer(&mut self, own: Option<&OwnMemory>) -> Result<(), PeerDeath> {
        let Some(channel) = &mut self.channel else {
            return Ok(());
        };
        let offered = channel.offer(!self.accepted, self.message_size_max, own);
        let (offer, descriptors) = offered.map_err(|error| PeerDeath::Io(error.into()))?;
        let body = offer.encode();
        let header = Header::new(Kind::Offer, 0).encode(&body);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let slices = [IoSlice::new(&header), IoSlice::new(&body)];
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A socket that has carried nothing but a handshake has room for it, or is of no use.
        match sendmsg(&self.socket, &slices, &mut ancillary, flags)? {
            count if count == header.len() + body.len() => Ok(()),
            _ => Err(Errno::NOBUFS.into()),
        }
    }

    /// Takes what the other end shares, and answers if it is the one that made the connection.
    pub(super) fn handle_offer(&mut self, body: &[u8], own: Option<&OwnMemory>) -> Result<(), PeerDeath> {
        let offer = Offer::decode(body).map_err(PeerDeath::Protocol)?;
        let Some(channel) = self.channel.as_mut().filter(|_| self.offer_awaited) else {
            return Err(PeerDeath::Protocol(FrameError::Unsolicited));
        };
        self.offer_awaited = false;
        let process = Credentials::of_peer(&self.socket).map_err(|error| PeerDeath::Io(error.into()))?;
        let descriptors = std::mem::take(&mut self.descriptors);
        let rest = channel.take(&offer, descriptors, process.process, self.message_size_max)?;
        // What cannot be mapped is reached by frames.
        self.memory = (offer.memory).and_then(|memory| PeerMemory::new(&memory, &rest, process.process).ok());
        if self.accepted { self.offer(own) } else { Ok(()) }
    }

    /// Sends and receives what is possible over the channel.
    fn exchange(&mut self, around: &mut Around<'_>) -> Result<(), PeerDeath> {
        let Some((peer, channel)) = self.peer.zip(self.channel.as_mut()) else {
            return Ok(());
        };
        let mut doorbell = channel.flush().map_err(PeerDeath::Protocol)?;
        let before = channel.pieces_received();
        if around.takes_messages {
            receive_messages(channel, peer, around, usize::MAX)?;
        }
        // Even of a message of which only a part has come, the other end may wait for the space.
        if channel.pieces_received() != before {
            self.used = around.now;
            doorbell |= channel.flush().map_err(PeerDeath::Protocol)?;
        }
        // Whatever is sent anyway is a doorbell too.
        if doorbell && self.outbox.is_empty() && !channel.ring() {
            self.outbox
                .push_frame(Header::new(Kind::Doorbell, 0), Bytes::new());
        }
        if channel.is_peer_dead(around.now) {
            return Err(PeerDeath::Killed);
        }
        Ok(())
    }

    /// Receives from the channel as far as there is room.
    fn receive_messages(
        &mut self,
        around: &mut Around<'_>,
        messages: &mut Messages,
    ) -> Result<(), PeerDeath> {
        let Some((peer, channel)) = self.peer.zip(self.channel.as_mut()) else {
            return Ok(());
        };
        while let Some(body) = messages.room() {
            let Some((kind, tag)) = channel.receive(body).map_err(PeerDeath::Protocol)? else {
                return Ok(());
            };
            self.used = around.now;
            around.take_message(kind, peer, tag, messages);
        }
        Ok(())
    }

    /// Receives what the other end left in the channel when it died.
    pub(super) fn receive_last(&mut self, around: &mut Around<'_>) {
        if let Some((peer, channel)) = self.peer.zip(self.channel.as_mut()) {
            // If it broke the ring at its end, that is how far it got.
            let _ = receive_messages(channel, peer, around, Channel::MESSAGES_MAX);
        }
    }

    /// Asks for the channel's doorbell. Returns whether the channel may be left alone until then.
    fn sleep(&mut self) -> bool {
        // An error will be found when it is next looked into.
        let asleep = self
            .channel
            .as_mut()
            .is_none_or(|channel| channel.sleep() == Ok(true));
        self.active = !asleep;
        asleep
    }
}

/// Receives messages while there is room for them. `messages_max` is for when room does not count.
fn receive_messages(
    channel: &mut Channel,
    peer: PeerId,
    around: &mut Around<'_>,
    messages_max: usize,
) -> Result<(), PeerDeath> {
    let mut count = 0;
    while count < messages_max && (messages_max < usize::MAX || around.has_room()) {
        let mut body = Body::new();
        let Some((kind, tag)) = channel.receive(&mut body).map_err(PeerDeath::Protocol)? else {
            break;
        };
        around.handle_message(kind, peer, tag, body);
        count += 1;
    }
    Ok(())
}

/// Receives bytes, and descriptors that come with them. Those that are too many are closed.
pub(super) fn receive(
    socket: &OwnedFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            for descriptor in came {
                if descriptors.len() < DESCRIPTORS_MAX {
                    descriptors.push(descriptor);
                }
            }
        }
    }
    Ok(received.bytes)
}
