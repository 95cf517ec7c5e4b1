//! The state of one association besides what the association itself keeps.

use std::time::Instant;

use ropewalk_fabric::{Address, HandshakeError, PeerDeath, PeerId};

use super::rdm::{Remote, Slot};
use crate::messaging::Association;

/// The number of an association at this endpoint; random and never 0, as the peer proves by it that it is the
/// one that was answered.
pub(super) type ConnectionId = u64;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) association: Association,
    /// The peer's name at libfabric, and what libfabric made of it.
    pub(super) name: Box<[u8]>,
    pub(super) remote: Remote,
    /// Whom we called, or who has proven to be at the other end.
    pub(super) peer: Option<(PeerId, Address)>,
    /// True if the other end called.
    pub(super) accepted: bool,
    /// How many were made before it.
    pub(super) age: u64,
    /// When it is given up if it is not open.
    pub(super) deadline: Instant,
    /// A message that libfabric did not take yet, and its length.
    pub(super) blocked: Option<(Slot, usize)>,
    /// How many messages libfabric has taken and not sent yet.
    pub(super) leaving: usize,
    /// How many have left since it was made.
    pub(super) left: u64,
    /// How far it was when it was last looked at with something to send, and since when.
    pub(super) stalled: Option<(u64, Instant)>,
    /// How often it was called again.
    pub(super) redials: usize,
    /// True if it waits until its deadline to be called again.
    pub(super) is_paused: bool,
    /// Nothing may be sent to it any more.
    pub(super) is_beyond_reach: bool,
    /// True if it stands in the queue of those that have something to send.
    pub(super) is_queued: bool,
}

impl Connection {
    /// How many messages libfabric may have of one connection, so that a peer that takes none leaves buffers
    /// to the others.
    const LEAVING_MAX: usize = 8;

    /// Returns true if there is something that libfabric might take.
    pub(super) fn is_sendable(&self) -> bool {
        self.blocked.is_none() && self.leaving < Self::LEAVING_MAX && self.association.is_sendable()
    }

    /// Looks whether it gets on with what it has to send. Returns since when it does not.
    pub(super) fn look(&mut self, now: Instant) -> Option<Instant> {
        let far = self.left + self.association.activity().heard;
        if self.blocked.is_none() && self.leaving == 0 && !self.association.frames.has_unsent() {
            self.stalled = None;
        } else if self.stalled.is_none_or(|(known, _)| known != far) {
            self.stalled = Some((far, now));
        }
        self.stalled.map(|(_, since)| since)
    }

    /// Why it is given up when its time to open is over.
    pub(super) fn overdue(&self) -> PeerDeath {
        match self.accepted || self.association.was_heard() {
            true => PeerDeath::Handshake(HandshakeError::Silent),
            false => PeerDeath::ConnectTimedOut,
        }
    }
}
