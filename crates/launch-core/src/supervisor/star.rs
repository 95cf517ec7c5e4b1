//! The launcher's PMI server in jobs in which agents are adopted: all agents' servers are right below it.
//!
//! Servers in the middle of the tree would hold what those below them said, and lose it with their hosts.
//! Here they hold nothing of others, and the way between the ends is safe: nothing on it is lost or doubled.
//! That costs the launcher a message for each host and fence, though still not a connection.

use ropewalk_names::HostId;
use ropewalk_pmi as pmi;

use super::{ground::Ground, groups::Groups};
use crate::{
    plan::ALL_AGENTS,
    protocol::{Down, Order},
};

/// An agent numbers its questions by itself; below these bits is its number, and above them its host's.
const QUESTION_BITS: u32 = 40;
const QUESTION_MASK: u64 = (1 << QUESTION_BITS) - 1;

/// The PMI server of an agent says something.
pub(super) fn handle_up(ground: &mut Ground, host: HostId, up: pmi::Up) {
    if let Some(pmi) = server(ground) {
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
    }
}

/// The ranks of a host are gone with its agent, which cannot say so.
pub(super) fn handle_lost(ground: &mut Ground, groups: &Groups, host: HostId) {
    let first = ground.plan.first_group();
    let Some(pmi) = server(ground) else {
        return;
    };
    for group in groups.plans().chain([&first]) {
        let departed = pmi::Up::Departed {
            group: pmi::GroupId(group.id),
            ranks: group.ranks_on([host]),
            how: pmi::Absence::AgentLost,
        };
        pmi.handle_up(ALL_AGENTS, departed);
    }
}

/// The launcher's PMI server says something to one agent's, or to all of them.
pub(super) fn tell_agents(ground: &mut Ground, down: pmi::Down) {
    match down {
        pmi::Down::Answer { id, answer } => {
            let host = HostId((id >> QUESTION_BITS) as u32);
            let id = id & QUESTION_MASK;
            ground.order(host, Order::Pmi(pmi::Down::Answer { id, answer }));
        }
        down => ground.send(Down::Pmi(down)),
    }
}

fn server(ground: &mut Ground) -> Option<&mut pmi::Server> {
    ground.pmi.as_mut().filter(|_| ground.plan.adopts())
}
