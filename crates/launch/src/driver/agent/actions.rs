//! The actions that an agent performs for its mind.

use bytes::Bytes;
use ropewalk_launch_core::{
    host_agent::{Action, ToRank},
    protocol::Report,
};

use super::{Agent, SWEEP_MAX, Sweep, rank_link::to_rank};

impl Agent {
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::ClosePmi(rank) => self.ranks.close_pmi(rank, &self.poller),
            Action::Expose(rank, held) => {
                let memory = self.ranks.held.remove(&(rank, held.id));
                let memory = memory.expect("the mind exposes only what it said to keep, and once");
                let bytes = memory.into_bytes().unwrap_or_else(|error| {
                    // Whoever wants to read it is told that it is not there.
                    let text = format!("what it left cannot be read: {error}");
                    self.branch.report(Report::Notice { rank, text });
                    Bytes::new()
                });
                let handle = self.branch.endpoint().expose(bytes);
                self.mind.handle_exposed(rank, held, handle);
            }
            Action::Withdraw(handle) => drop(self.branch.endpoint().withdraw(&handle)),
            Action::Fence(gone) => self.branch.endpoint().fence(gone),
            Action::Forget(rank, id) => drop(self.ranks.held.remove(&(rank, id))),
            Action::Report(report) => self.branch.report(report),
            Action::SendChild(node, down) => self.branch.send_pmi(node, down),
            Action::SendLink(rank, message) => {
                let is_answer = matches!(message, ToRank::Welcome(_) | ToRank::Taken);
                let packet = to_rank(message, self.branch.key());
                self.ranks.tell(rank, packet, is_answer, &self.poller);
            }
            Action::SendPmi(rank, bytes) => self.ranks.answer(rank, &bytes, &self.poller),
            Action::Signal(rank, signal) => self.ranks.signal(rank, signal),
            Action::Sweep => {
                let now = std::time::Instant::now();
                self.end_helper(now);
                self.ends.sweep = Sweep::Killing {
                    next: now,
                    until: now + SWEEP_MAX,
                };
            }
        }
    }
}
