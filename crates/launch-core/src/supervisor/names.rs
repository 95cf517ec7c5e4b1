//! Names that several jobs share.

use std::time::Duration;

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;

use super::{Action, Supervisor};
use crate::{
    event::JobEvent,
    protocol::{Down, Order},
    tree::NodeId,
};

/// Who asks for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameAsker {
    /// The PMI server of the only host.
    Agent(HostId, u64),
    /// Our own.
    Own(pmi::NameQuestionId),
}

impl Supervisor {
    pub(super) fn ask_names(&mut self, asker: NameAsker, question: pmi::Question) {
        self.actions.push_back(Action::AskNames(asker, question));
    }

    /// The name server did not do something, as this sentence says. A program that asks again and again is no reason to tell
    /// that again.
    pub fn handle_names_failed(&mut self, reason: String) {
        if self.names_failed.len() < FAILURES_TOLD_MAX && self.names_failed.insert(reason.clone()) {
            self.tell(JobEvent::NameServerFailed { reason });
        }
    }

    /// The name server that several jobs share has answered, or has not, as the answer says.
    pub fn handle_names_answer(&mut self, now: Duration, asker: NameAsker, answer: pmi::Answer) {
        match &answer {
            pmi::Answer::Failed { reason } => self.handle_names_failed(reason.to_string()),
            _ => self.names_failed.clear(),
        }
        match asker {
            NameAsker::Agent(host, id) => {
                let answer = Order::NamesAnswered { id, answer };
                let node = NodeId::of(host);
                self.actions.push_back(Action::Send(Down::To(node, answer)));
            }
            NameAsker::Own(id) => {
                if let Some(pmi) = &mut self.pmi {
                    pmi.handle_name_answer(id, answer);
                }
                self.forward_pmi(now);
            }
        }
    }
}

/// So many failures are told until something goes well.
const FAILURES_TOLD_MAX: usize = 64;
