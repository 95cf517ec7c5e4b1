//! Names that several jobs share.

use std::collections::BTreeSet;

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;

use super::ground::Ground;
use crate::{event::JobEvent, protocol::Order};

/// Who asks for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameAsker {
    /// The PMI server of the only host.
    Agent(HostId, u64),
    /// Our own.
    Own(pmi::NameQuestionId),
}

/// The failures of a name server that were told since it did something well.
#[derive(Debug, Default)]
pub(super) struct NameFailures(BTreeSet<String>);

impl NameFailures {
    /// So many are told until something goes well.
    const TOLD_MAX: usize = 64;

    /// The name server did not do something, as this sentence says. A program that asks again and again is no reason to
    /// tell that again.
    pub(super) fn handle(&mut self, ground: &mut Ground, reason: String) {
        if self.0.len() < Self::TOLD_MAX && self.0.insert(reason.clone()) {
            ground.tell(JobEvent::NameServerFailed { reason });
        }
    }

    /// The name server has answered, or has not, as the answer says.
    pub(super) fn handle_answer(&mut self, ground: &mut Ground, asker: NameAsker, answer: pmi::Answer) {
        match &answer {
            pmi::Answer::Failed { reason } => self.handle(ground, reason.to_string()),
            _ => self.0.clear(),
        }
        match asker {
            NameAsker::Agent(host, id) => ground.order(host, Order::NamesAnswered { id, answer }),
            NameAsker::Own(id) => {
                if let Some(pmi) = &mut ground.pmi {
                    pmi.handle_name_answer(id, answer);
                }
            }
        }
    }
}
