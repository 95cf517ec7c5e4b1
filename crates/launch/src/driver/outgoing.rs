//! Messages between neighbours in the tree, many in one.

use std::collections::VecDeque;

use ropewalk_fabric::{Endpoint, PeerId, SubmitError};
use serde::Serialize;

/// What waits to be sent to a neighbour, in batches.
pub(super) struct Outgoing<T> {
    batches: VecDeque<Vec<T>>,
    size: usize,
}

impl<T> Default for Outgoing<T> {
    fn default() -> Self {
        let batches = VecDeque::new();
        Self { batches, size: 0 }
    }
}

impl<T> Outgoing<T> {
    /// Bytes in one message, about; a single one that is larger goes alone.
    const BATCH_SIZE_MAX: usize = 1 << 20;
    /// Messages without bytes of output in one message.
    const BATCH_LENGTH_MAX: usize = 4096;

    /// Adds a message with so many bytes of output or input.
    pub(super) fn push(&mut self, message: T, size: usize) {
        let is_full = self.size + size > Self::BATCH_SIZE_MAX;
        match self.batches.back_mut() {
            Some(batch) if !is_full && batch.len() < Self::BATCH_LENGTH_MAX => batch.push(message),
            _ => {
                self.batches.push_back(vec![message]);
                self.size = 0;
            }
        }
        self.size += size;
    }

    /// How many batches there are.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }
}

/// Returns whether something was sent. What finds no room waits for the next turn.
pub(super) fn send_batches<T: Serialize>(
    endpoint: &mut Endpoint,
    peer: PeerId,
    tag: u64,
    outgoing: &mut Outgoing<T>,
) -> bool {
    let mut sent = false;
    while let Some(batch) = outgoing.batches.pop_front() {
        let body = postcard::to_allocvec(&batch).expect("messages have no map and no unsized sequence");
        match endpoint.send_unexpected(peer, tag, body) {
            Ok(()) => sent = true,
            Err(SubmitError::Busy { .. }) => {
                outgoing.batches.push_front(batch);
                break;
            }
            // It is gone, which its event tells.
            Err(_) => outgoing.batches.clear(),
        }
    }
    sent
}
