//! How connections end.

use super::{ConnectionId, StreamProvider, connection::Surroundings};
use crate::{
    PeerDeath, PeerId,
    inbox::Around,
    provider::{TransferFailure, shm::Channel},
};

impl StreamProvider {
    /// Closes a connection, and with it all others of its peer, ends what was in progress with the peer, and
    /// tells.
    pub(super) fn lose(&mut self, id: ConnectionId, cause: PeerDeath, around: &mut Around<'_>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.receive_last(around);
        }
        if self.hand_over(id, &cause, around.now) || self.redial_later(id, &cause) {
            return;
        }
        if let Some(peer) = self.close(id) {
            self.lose_peer(peer, cause, around);
        }
    }

    pub(super) fn lose_peer(&mut self, peer: PeerId, cause: PeerDeath, around: &mut Around<'_>) {
        let Some(connections) = self.peers.remove(&peer) else {
            return;
        };
        for &other in &connections.ids {
            // If both sides made a connection, this one may have brought more before the peer ended.
            if matches!(cause, PeerDeath::Closed | PeerDeath::Killed)
                && let Some(connection) = self.connections.get_mut(&other)
                && connection.is_open()
            {
                let _ = connection.receive(&mut Surroundings {
                    transfers: &mut self.transfers,
                    own_memory: self.own_memory.as_ref(),
                    around,
                });
                connection.receive_last(around);
            }
            self.close(other);
        }
        let lost: Vec<_> = self
            .transfers
            .iter()
            .filter(|(_, transfer)| connections.ids.contains(&transfer.connection()))
            .map(|(&operation, _)| operation)
            .collect();
        let direct = self
            .direct
            .take(peer)
            .into_iter()
            .map(|transfer| transfer.operation);
        for operation in lost.into_iter().chain(direct) {
            self.transfers.remove(&operation);
            around.handle_transferred(operation, Err(TransferFailure::PeerDied(cause.clone())));
        }
        around.handle_death(peer, cause);
    }

    /// Closes one connection. Returns whose it was, if that was known.
    pub(super) fn close(&mut self, id: ConnectionId) -> Option<PeerId> {
        let connection = self.connections.remove(&id)?;
        self.strangers.remove(&id);
        self.greeted.remove(&id);
        self.sendable.remove(&id);
        self.hot.retain(|&hot| hot != id);
        self.active.retain(|&active| active != id);
        self.deadlines.remove(&(connection.deadline, id));
        // Closing is not enough if a child of this process has a copy of the descriptor.
        let _ = self.poller.delete(&connection.socket);
        // Nor is it of a bell, which the peer has too.
        if connection.bell_watched
            && let Some(bell) = connection.channel.as_ref().and_then(Channel::bell)
        {
            let _ = self.poller.delete(bell);
        }
        let peer = connection.peer;
        self.keep_out(connection);
        peer
    }
}
