//! Names that several jobs share.

use std::time::Duration;

use ropewalk_group::HostId;
use ropewalk_pmi as pmi;

use super::{Action, Supervisor};
use crate::{
    event::JobEvent,
    protocol::{Down, Order},
    tree::NodeId,
};

/// Who asks for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameAsker {
    /// The PMI server of the only host.
    Agent(HostId, u64),
    /// Our own.
    Own(pmi::NameQuestionId),
}

impl Supervisor {
    pub(super) fn ask_names(&mut self, asker: NameAsker, question: pmi::Question) {
        self.actions.push_back(Action::AskNames(asker, question));
    }

    /// The name server that several jobs share has answered, or has not, as the answer says.
    pub(crate) fn handle_names_answer(&mut self, now: Duration, asker: NameAsker, answer: pmi::Answer) {
        if let pmi::Answer::Failed { reason } = &answer {
            let reason = reason.to_string();
            if self.names_failed.as_ref() != Some(&reason) {
                self.names_failed = Some(reason.clone());
                self.tell(JobEvent::NameServerFailed { reason });
            }
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
