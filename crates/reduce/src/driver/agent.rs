//! The news of the agent: who is gone, and what those have left.

use ropewalk_fabric::{AgentLinkError, FromAgent, Identity, Role};

use super::progress::ProgressThread;
use crate::outcome::ReductionError;

impl ProgressThread {
    /// Looks at what the agent says.
    pub(super) fn receive_from_agent(&mut self) {
        let Some(link) = self.link.clone() else { return };
        loop {
            match link.receive::<FromAgent>() {
                Ok(Some((message, _))) => self.hear_agent(message),
                Ok(None) => return,
                Err(AgentLinkError::Encoding(_)) => {}
                Err(_) => {
                    // Nobody would tell this rank of a death any more.
                    self.link = None;
                    return self.give_up(&ReductionError::AgentLost);
                }
            }
        }
    }

    fn hear_agent(&mut self, message: FromAgent) {
        match message {
            FromAgent::Inherited {
                rank,
                incarnation,
                held,
                handle,
            } => self.hear_inherited(rank, incarnation, held, handle),
            FromAgent::Departed(departure) => {
                self.engine.fence(Identity {
                    role: Role::Rank,
                    rank: departure.rank,
                    incarnation: departure.incarnation,
                });
                self.hear_departure(departure);
            }
            FromAgent::Taken | FromAgent::Welcome(_) => {}
        }
    }
}
