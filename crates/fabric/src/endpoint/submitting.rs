//! The messages and one-sided operations that the owner of an endpoint submits.

use std::time::Duration;

use bytes::Bytes;

use super::Endpoint;
use crate::{
    Body, Buffer, OperationId, PeerId, RegionHandle, SubmitError, ToPeer,
    frame::MessageKind,
    operations::{Awaited, Operation},
    outgoing_message::OutgoingMessage,
    provider::Memory,
    region_table::Access,
};

impl Endpoint {
    /// How many operations may wait for a look at the clock.
    const UNTIMED_MAX: usize = 1024;
    const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// Sends a message that `peer` need not wait for. Messages to one peer arrive in order, or
    /// [`Event::PeerDied`](crate::Event::PeerDied) tells that some did not.
    ///
    /// # Errors
    /// If too much waits for the peer already, the message is too large, or the address is unusable.
    pub fn send_unexpected(
        &mut self,
        peer: impl ToPeer,
        tag: u64,
        body: impl Into<Body>,
    ) -> Result<(), SubmitError> {
        let peer = peer.to_peer(self)?;
        self.send_body(peer, MessageKind::Unexpected, tag, &body.into())
    }

    /// As [`send_unexpected`](Self::send_unexpected), for a body that the owner keeps: that spares the moving of it.
    ///
    /// # Errors
    /// As for that.
    pub fn send_unexpected_body(&mut self, peer: PeerId, tag: u64, body: &Body) -> Result<(), SubmitError> {
        self.send_body(peer, MessageKind::Unexpected, tag, body)
    }

    /// As [`send_unexpected`](Self::send_unexpected), for a body whose rest is `data`. Over a stream that is sent from
    /// where it is, if it is long.
    ///
    /// # Errors
    /// As for that.
    pub fn send_unexpected_with(
        &mut self,
        peer: PeerId,
        tag: u64,
        body: &Body,
        data: &Bytes,
    ) -> Result<(), SubmitError> {
        let message = OutgoingMessage {
            data: Some(data),
            ..OutgoingMessage::new(MessageKind::Unexpected, tag, body)
        };
        self.send(peer, message)
    }

    /// Sends a message that `peer` posted a [`receive_expected`](Self::receive_expected) for; without one it
    /// is dropped there.
    ///
    /// # Errors
    /// As for [`send_unexpected`](Self::send_unexpected).
    pub fn send_expected(
        &mut self,
        peer: impl ToPeer,
        tag: u64,
        body: impl Into<Body>,
    ) -> Result<(), SubmitError> {
        let peer = peer.to_peer(self)?;
        self.send_body(peer, MessageKind::Expected, tag, &body.into())
    }

    /// Sends the message for which `peer` posted the [`receive_reply`](Self::receive_reply) with this tag. A peer
    /// with which there is no connection any more is not called back: it does not wait.
    ///
    /// # Errors
    /// [`SubmitError::NotConnected`] in that case, and otherwise as for
    /// [`send_unexpected`](Self::send_unexpected).
    pub fn send_reply(&mut self, peer: PeerId, tag: u64, body: &Body) -> Result<(), SubmitError> {
        if !self.is_connected(peer) {
            return Err(SubmitError::NotConnected);
        }
        self.send_body(peer, MessageKind::Reply, tag, body)
    }

    /// As [`send_reply`](Self::send_reply), for a peer that goes on without it: over a network it waits up to 2 ms for
    /// the next message to that peer, and goes with it.
    ///
    /// # Errors
    /// As for that.
    pub fn send_delayed_reply(&mut self, peer: PeerId, tag: u64, body: &Body) -> Result<(), SubmitError> {
        if !self.is_connected(peer) {
            return Err(SubmitError::NotConnected);
        }
        let message = OutgoingMessage {
            may_wait: true,
            ..OutgoingMessage::new(MessageKind::Reply, tag, body)
        };
        self.send(peer, message)
    }

    /// Waits for one message from `peer` with this tag; the operation brings
    /// [`Completion::Received`](crate::Completion::Received). A second receive for the same peer and tag replaces
    /// the first, which ends as timed out.
    ///
    /// # Errors
    /// If too many operations are in progress, or the address is unusable.
    pub fn receive_expected(
        &mut self,
        peer: impl ToPeer,
        tag: u64,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let peer = peer.to_peer(self)?;
        self.check_operations(peer)?;
        self.route(peer)?;
        Ok(self.start(peer, Awaited::Expected(tag), timeout))
    }

    /// Waits for one message from `peer` that bears the operation's own [tag](OperationId::tag), which has to be
    /// told to it; the operation brings [`Completion::Received`](crate::Completion::Received).
    ///
    /// # Errors
    /// If too many operations are in progress, or the peer is gone.
    pub fn receive_reply(
        &mut self,
        peer: impl ToPeer,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let peer = peer.to_peer(self)?;
        self.check_operations(peer)?;
        if self.peers.get(peer).is_none() {
            return Err(SubmitError::NotConnected);
        }
        Ok(self.start(peer, Awaited::Reply, timeout))
    }

    /// Fills `into` from the region that the handle names, from `offset` on, without the target's
    /// application; the operation brings [`Completion::Got`](crate::Completion::Got). The bytes go without a
    /// checksum of ours, unless this endpoint's
    /// [`EndpointOptions::bulk_checksum`](crate::EndpointOptions::bulk_checksum) asks for one: then they are
    /// verified before the operation completes, and wrong ones are never handed out. The option says with
    /// which transports.
    ///
    /// # Errors
    /// If the range is not inside the region, too many operations are in progress, or the address is unusable.
    pub fn get(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        into: Buffer,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        self.transfer(region, offset, Memory::Into(into), timeout)
    }

    /// Writes `from` into the region that the handle names, from `offset` on, without the target's
    /// application; the operation brings [`Completion::Put`](crate::Completion::Put). If it fails, part of the
    /// bytes may have been written. As to checksums see [`get`](Self::get).
    ///
    /// # Errors
    /// If the handle does not allow it, the range is not inside the region, too many operations are in progress,
    /// or the address is unusable.
    pub fn put(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        from: Bytes,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        if !region.writable {
            return Err(SubmitError::ReadOnly);
        }
        self.transfer(region, offset, Memory::From(from), timeout)
    }

    fn transfer(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        memory: Memory,
        timeout: Duration,
    ) -> Result<OperationId, SubmitError> {
        let (peer, access) = self.access(region, offset, memory.size())?;
        let operation = self.inbox.operations.next_id();
        match self.route(peer)? {
            None => self.loopback.transfer(operation, access, memory),
            Some(provider) => self.providers[provider].transfer(operation, peer, access, memory)?,
        }
        Ok(self.start(peer, Awaited::Transfer, timeout))
    }

    /// Forgets an operation: no event will tell of it. Nothing happens if it ended already.
    pub fn cancel(&mut self, operation: OperationId) {
        if let Some(cancelled) = self.inbox.forget(operation, &mut self.peers) {
            self.stop_transfer(operation, &cancelled);
        }
    }

    pub(super) fn send_body(
        &mut self,
        peer: PeerId,
        kind: MessageKind,
        tag: u64,
        body: &Body,
    ) -> Result<(), SubmitError> {
        self.send(peer, OutgoingMessage::new(kind, tag, body))
    }

    fn send(&mut self, peer: PeerId, message: OutgoingMessage<'_>) -> Result<(), SubmitError> {
        let (size, size_max) = (message.size(), self.limits.message_size_max);
        if size > size_max {
            return Err(SubmitError::TooLarge { size, size_max });
        }
        if let Some(provider) = self.route(peer)? {
            return self.providers[provider].send(peer, message);
        }
        if self.loopback.message_bytes() + size > self.limits.queued_bytes_max
            || self.loopback.len() >= self.limits.events_max
        {
            return Err(self.busy(peer, "queued_bytes_max"));
        }
        let body = message.whole().into_owned();
        self.loopback.send(message.kind, message.tag, body);
        Ok(())
    }

    fn access(
        &mut self,
        region: &RegionHandle,
        offset: u64,
        length: usize,
    ) -> Result<(PeerId, Access), SubmitError> {
        let peer = self.peer(&region.address)?;
        self.check_operations(peer)?;
        let length = length as u64;
        match offset.checked_add(length) {
            Some(end) if end <= region.length => {
                let access = Access {
                    region: region.region,
                    token: region.token,
                    offset,
                    length,
                };
                Ok((peer, access))
            }
            _ => Err(SubmitError::OutOfRange {
                offset,
                length,
                region_length: region.length,
            }),
        }
    }

    fn check_operations(&self, peer: PeerId) -> Result<(), SubmitError> {
        if self.inbox.operations.len() >= self.limits.operations_max {
            return Err(self.busy(peer, "operations_max"));
        }
        Ok(())
    }

    fn busy(&self, peer: PeerId, limit: &'static str) -> SubmitError {
        match self.peer_address(peer).cloned() {
            Some(peer) => SubmitError::Busy { peer, limit },
            None => SubmitError::NotConnected,
        }
    }

    fn start(&mut self, peer: PeerId, awaited: Awaited, timeout: Duration) -> OperationId {
        // A look at the clock for each operation would cost as much as sending a message: its time begins with the
        // next progress, without which nothing happens anyway.
        if self.inbox.operations.untimed() >= Self::UNTIMED_MAX {
            self.look_at_clock();
        }
        // A time-out that no clock can show is one that nobody can wait for.
        let deadline = self
            .now
            .checked_add(timeout)
            .unwrap_or_else(|| self.now + Self::TIMEOUT_MAX);
        if let Some(known) = self.peers.get_mut(peer) {
            known.operations += 1;
        }
        let (operation, replaced) = self.inbox.operations.insert(Operation {
            deadline,
            peer,
            awaited,
        });
        if let Some(replaced) = replaced {
            self.end_overdue(replaced);
        }
        operation
    }
}
