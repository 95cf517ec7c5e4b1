//! Jobs whose end somebody does not want to wait for.

use std::time::Duration;

use super::{Action, Phase, SIGKILL, Supervisor};
use crate::{
    protocol::{Down, Order},
    verdict::Ending,
};

impl Supervisor {
    /// Somebody wants the job to end, and says so again: ranks have no time left. Why the job is being ended stays as it was.
    pub fn handle_insistence(&mut self, now: Duration, signal: i32) {
        match &mut self.phase {
            Phase::Running => self.end(now, Ending::Interrupted(signal), SIGKILL),
            Phase::Ending { kill_at, .. } => {
                *kill_at = None;
                self.signal_all(SIGKILL);
            }
            Phase::Over => {}
        }
    }

    /// Sends a signal to all ranks, which are to end.
    pub(super) fn signal_all(&mut self, signal: i32) {
        let signal = Order::Signal { rank: None, signal };
        self.actions.push_back(Action::Send(Down::Order(signal)));
    }

    /// Nothing more is waited for, neither agents nor output that they have: the verdict is about what is known.
    pub fn despair(&mut self) {
        if self.phase != Phase::Over {
            self.actions.push_back(Action::AbandonAgents);
            self.finish();
        }
    }
}
