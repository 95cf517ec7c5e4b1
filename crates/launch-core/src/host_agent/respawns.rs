//! Ranks that get another process.

use ropewalk_names::{Incarnation, Rank};

use super::HostAgent;

impl HostAgent {
    /// Which life of a rank the next or present process is.
    pub fn incarnation(&self, rank: Rank) -> Incarnation {
        self.members.incarnation(rank).unwrap_or_default()
    }

    /// A rank that failed gets another process.
    pub fn handle_respawn(&mut self, rank: Rank, incarnation: Incarnation) {
        if !self.waiting.remove(&rank) || !self.members.handle_return(rank, incarnation) {
            return;
        }
        // What the one before had is served by now; the new one may use its numbers.
        self.holdings.disown(rank);
        self.open_pmi(rank);
        self.to_spawn.push_back(rank);
        self.forward_pmi();
    }

    /// A rank failed: whether it gets another process is for the launcher to say, and this host waits for that.
    pub(super) fn await_respawn(&mut self, rank: Rank) {
        if self.start.respawns && !self.is_ending && rank.0 < self.start.size {
            self.waiting.insert(rank);
        }
    }
}
