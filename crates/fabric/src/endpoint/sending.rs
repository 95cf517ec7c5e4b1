//! How an endpoint sends messages.

use bytes::Bytes;

use super::Endpoint;
use crate::{Body, PeerId, SubmitError, ToPeer, frame::MessageKind, outgoing_message::OutgoingMessage};

impl Endpoint {
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
        let data = Some(data);
        let kind = MessageKind::Unexpected;
        self.send(
            peer,
            OutgoingMessage {
                kind,
                tag,
                body,
                data,
            },
        )
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

    pub(super) fn send_body(
        &mut self,
        peer: PeerId,
        kind: MessageKind,
        tag: u64,
        body: &Body,
    ) -> Result<(), SubmitError> {
        let data = None;
        self.send(
            peer,
            OutgoingMessage {
                kind,
                tag,
                body,
                data,
            },
        )
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
}
