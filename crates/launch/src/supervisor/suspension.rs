//! Jobs that are suspended with their launcher.

use std::time::Duration;

use ropewalk_group::HostId;

use super::Supervisor;

impl Supervisor {
    /// The hosts that have something to do with the job still: they have to hear that it is to be suspended.
    pub(crate) fn hosts_left(&self) -> impl Iterator<Item = HostId> {
        let hosts = self.hosts.iter().zip(0..);
        hosts
            .filter(|(host, _)| !host.is_over)
            .map(|(_, number)| HostId(number))
    }

    /// The job was suspended, and goes on: that nothing happened meanwhile was meant. The clock stood still while it was
    /// `stopped`, but the time limit is one of the user's time.
    pub(crate) fn handle_resumed(&mut self, now: Duration, stopped: Duration) {
        self.note_progress(now);
        self.limit = self.limit.map(|limit| limit.saturating_sub(stopped));
        self.notices.handle_resumed(stopped);
    }
}
