//! Peers whose processes are stopped, and that are known to answer only when they go on.

use super::{Endpoint, ToPeer};
use crate::{PeerId, SubmitError};

impl Endpoint {
    /// As [`connect`](Self::connect), with a peer whose process is known to be stopped: its system still has
    /// [`Limits::connect_timeout`](crate::Limits::connect_timeout) to take the connection, but the peer may
    /// then take any time to prove itself. So a caller that waits for it has one place in the queue of its
    /// system, where those who give up and try again leave one behind each time. That the system is gone is
    /// told all the same, over TCP after a few times that time-out.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn connect_patiently(&mut self, peer: impl ToPeer) -> Result<(), SubmitError> {
        let peer = peer.to_peer(self)?;
        match (self.route(peer)?, self.peers.get(peer)) {
            (Some(provider), Some(known)) => self.providers[provider].connect(peer, &known.address, true),
            _ => Ok(()),
        }
    }

    /// Returns true if the peer's system has taken a connection that lives, whatever the peer does.
    pub fn is_reached(&self, peer: PeerId) -> bool {
        self.peers.get(peer).is_some_and(|known| {
            let link = || self.providers[known.provider?].link(peer);
            known.proven.is_some() || link().is_some_and(|link| link.is_reached)
        })
    }
}
