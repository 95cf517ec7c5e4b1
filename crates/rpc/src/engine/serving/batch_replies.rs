//! The replies to the calls of one batch, in as few messages as hold them.

use ropewalk_fabric::PeerId;

use crate::{
    reply::{BatchedReplies, Reply},
    responder::ReplyTo,
    wire::{Body, Slot},
};

/// Replies to the calls of one batch, collected while it is served.
pub(super) struct BatchReplies {
    peer: PeerId,
    /// The first of those that wait here: its tag goes on the message.
    first: Option<ReplyTo>,
    bytes: Vec<u8>,
}

impl BatchReplies {
    pub(super) const fn new(peer: PeerId) -> Self {
        let bytes = Vec::new();
        Self {
            peer,
            first: None,
            bytes,
        }
    }

    pub(super) fn is_for(&self, peer: PeerId) -> bool {
        self.peer == peer
    }

    /// Adds a reply. Returns the message of those before it, and its tag, if there is no room for both.
    pub(super) fn push(
        &mut self,
        to: &ReplyTo,
        index: u32,
        reply: &[u8],
        size_max: usize,
    ) -> Option<(u64, Body)> {
        let full = match self.bytes.len() + BatchedReplies::OVERHEAD + reply.len() > size_max {
            true => self.take().map(|(first, body)| (first.tag, body)),
            false => None,
        };
        let slot = Slot { tag: to.tag, index };
        BatchedReplies::encode_into(&mut self.bytes, slot, reply);
        self.first.get_or_insert_with(|| to.clone());
        full
    }

    pub(super) fn take(&mut self) -> Option<(ReplyTo, Body)> {
        let first = self.first.take()?;
        let bytes = std::mem::take(&mut self.bytes);
        Some((first, Reply::Batch(BatchedReplies::new(&bytes)).encode(None)))
    }
}
