//! A server of names that several jobs share: lends its [`NameTable`] an endpoint.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use ropewalk_fabric::{BindError, Body, Endpoint, EndpointOptions, Event, JobKey, PeerId};
use ropewalk_launch_core::names::{MESSAGE_SIZE_MAX, NAMES, NameTable, identity_of_server};

use super::shared_names::only_tcp;

/// Keeps the names that jobs publish with [`PmiOptions::name_server`](crate::PmiOptions::name_server), in memory only.
///
/// A client has to prove that it has the key before the server listens to it, and all that follows is
/// encrypted. A name is gone with the connection of the job that published it, and with this server; jobs
/// that go on publish theirs again.
///
/// ```no_run
/// # use std::{path::Path, time::Duration};
/// # use ropewalk_launch::NameServer;
/// # use ropewalk_fabric::JobKey;
/// let key = JobKey::read_from_or_make(Path::new("names.key"))?;
/// let mut server = NameServer::bind("127.0.0.1:6392".parse()?, key)?;
/// loop {
///     server.serve(Duration::from_secs(60));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NameServer {
    endpoint: Endpoint,
    address: SocketAddr,
    table: NameTable<PeerId>,
}

impl NameServer {
    /// How long a launcher may be silent before its names are forgotten, and the server before it counts as gone. The
    /// names of launchers that come back, or find another server, are published again.
    pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);

    /// Listens at `address`; port 0 lets the system choose. Jobs have to name this very address.
    ///
    /// # Errors
    /// If the system refuses, or if it is no address of one interface.
    pub fn bind(address: SocketAddr, key: JobKey) -> Result<Self, BindError> {
        let mut options = EndpointOptions::new(NAMES, key, identity_of_server());
        options.bind = address;
        options.transports = only_tcp();
        options.encrypt = true;
        options.limits.heartbeat = Some(Self::SILENCE_MAX);
        options.limits.message_size_max = MESSAGE_SIZE_MAX;
        options.limits.queued_bytes_max = 1 << 20;
        options.limits.events_bytes_max = 1 << 20;
        let endpoint = Endpoint::bind(options)?;
        let bound = endpoint.address().location().parse();
        Ok(Self {
            address: bound.unwrap_or(address),
            endpoint,
            table: NameTable::new(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves for so long.
    pub fn serve(&mut self, duration: Duration) {
        let begun = Instant::now();
        loop {
            self.endpoint.progress();
            while let Some(event) = self.endpoint.poll_event() {
                self.handle(event);
            }
            let left = duration.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            self.endpoint.wait(left);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Unexpected { from, tag, body } => {
                // Names of one that is gone already would be there for ever: its end is told once.
                if !self.endpoint.is_connected(from) {
                    return;
                }
                if self.endpoint.watch(from).is_err() {
                    return;
                }
                let reply = self.table.handle_message(from, &body);
                // Who is gone, or takes no replies, waits for none.
                let _ = self.endpoint.send_reply(from, tag, &Body::from(reply));
            }
            Event::PeerDied { peer, .. } => self.table.handle_gone(peer),
            // It asks nobody anything.
            Event::Completed { .. } => {}
        }
    }
}
