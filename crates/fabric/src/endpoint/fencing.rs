//! How an endpoint keeps out those that are known to be gone.

use std::time::Instant;

use super::Endpoint;
use crate::{Identity, PeerDeath};

impl Endpoint {
    /// From now on a member of the job is not let in, in this and all its earlier incarnations: its job
    /// counts it as gone, whatever may still run of it. Connections with it end with [`PeerDeath::Fenced`],
    /// and anything that came over them and waits to be taken is dropped. If the member connects again it is
    /// told, and so it is if it is connected to. Memory on this host that it shares already stays shared
    /// until the region is withdrawn.
    pub fn fence(&mut self, identity: Identity) {
        self.fences.raise(identity);
        if self.fork_guard.is_forked() {
            return;
        }
        let now = Instant::now();
        let fences = &self.fences;
        let fenced = self.peers.iter_mut().filter_map(|(peer, known)| {
            let proven = known.proven.as_ref()?;
            Some((peer, known.provider?)).filter(|_| fences.has(proven.identity))
        });
        for (peer, provider) in fenced.collect::<Vec<_>>() {
            self.inbox.drop_messages_from(peer);
            let (_, providers, mut around) = self.around(now, provider, true);
            providers[provider].disconnect(peer, PeerDeath::Fenced, &mut around);
        }
    }
}
