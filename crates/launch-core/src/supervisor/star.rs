//! The launcher's PMI server in jobs in which agents are adopted: all agents' servers are right below it.
//!
//! Servers in the middle of the tree would hold what those below them said, and lose it with their hosts. Here they hold
//! nothing of others, and the way between the ends is safe: nothing on it is lost or doubled. That costs the launcher a
//! message for each host and fence, though still not a connection.

use std::time::Duration;

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;

use super::{Action, Supervisor};
use crate::{
    plan::ALL_AGENTS,
    protocol::{Down, Order},
    tree::NodeId,
};

/// An agent numbers its questions by itself; below these bits is its number, and above them its host's.
const QUESTION_BITS: u32 = 40;
const QUESTION_MASK: u64 = (1 << QUESTION_BITS) - 1;

impl Supervisor {
    /// The PMI server of an agent says something.
    pub(super) fn handle_agent_pmi(&mut self, now: Duration, host: HostId, up: pmi::Up) {
        let Some(pmi) = self.pmi.as_mut().filter(|_| self.plan.adopts()) else {
            return;
        };
        pmi.handle_up(
            ALL_AGENTS,
            match up {
                pmi::Up::Ask { id, question } => pmi::Up::Ask {
                    id: u64::from(host.0) << QUESTION_BITS | (id & QUESTION_MASK),
                    question,
                },
                up => up,
            },
        );
        self.forward_pmi(now);
    }

    /// The ranks of a host are gone with its agent, which cannot say so.
    pub(super) fn tell_pmi_of_lost(&mut self, host: HostId) {
        let Some(pmi) = self.pmi.as_mut().filter(|_| self.plan.adopts()) else {
            return;
        };
        let first = self.plan.first_group();
        let spawned = self.groups.values().map(|group| &group.plan);
        for group in spawned.chain([&first]) {
            let departed = pmi::Up::Departed {
                group: pmi::GroupId(group.id),
                ranks: group.ranks_on([host]),
                failed: true,
            };
            pmi.handle_up(ALL_AGENTS, departed);
        }
    }

    /// The launcher's PMI server says something to one agent's, or to all of them.
    pub(super) fn tell_agents_pmi(&mut self, down: pmi::Down) {
        let down = match down {
            pmi::Down::Answer { id, answer } => {
                let node = NodeId::of(HostId((id >> QUESTION_BITS) as u32));
                let id = id & QUESTION_MASK;
                Down::To(node, Order::Pmi(pmi::Down::Answer { id, answer }))
            }
            down => Down::Pmi(down),
        };
        self.actions.push_back(Action::Send(down));
    }
}
