//! Takes the packets of the link to a rank, and translates between them and the agent's mind.

use ropewalk_fabric::{FromAgent, JobKey, ToAgent, Welcome};
use ropewalk_launch_core::host_agent::{FromRank, ToRank};

use super::{Agent, poller::Channel, rank_io::Reading};

impl Agent {
    /// Takes one message from a rank's link. Returns whether there may be more.
    pub(super) fn read_link(&mut self, index: usize) -> bool {
        let Some((rank, sockets)) = self.ranks.sockets(index) else {
            return false;
        };
        match sockets.read_link() {
            Reading::Drained => false,
            Reading::Some(Ok((message, memory))) => {
                self.activity.note();
                let size = memory.as_ref().map(|memory| memory.length() as u64);
                let id = match &message {
                    ToAgent::Hold(held) => Some(held.id),
                    _ => None,
                };
                let keep = self.mind.handle_link(rank, from_rank(message), size);
                if let (true, Some(id), Some(memory)) = (keep, id, memory) {
                    self.ranks.held.insert((rank, id), memory);
                }
                true
            }
            Reading::Some(Err(error)) => {
                sockets.close_link();
                self.ranks.ignore(index, Channel::Link, &self.poller);
                self.mind.handle_link_broken(rank, error.to_string());
                false
            }
            Reading::Over => {
                self.ranks.ignore(index, Channel::Link, &self.poller);
                false
            }
        }
    }
}

/// A packet of a rank, for the mind.
fn from_rank(packet: ToAgent) -> FromRank {
    match packet {
        ToAgent::Attach => FromRank::Attach,
        ToAgent::Hold(held) => FromRank::Hold(held),
        ToAgent::Join => FromRank::Join,
        ToAgent::Release(id) => FromRank::Release(id),
        ToAgent::Trace(event) => FromRank::Trace(event),
        ToAgent::Admitted => FromRank::Admitted,
    }
}

/// The packet for a rank. A welcome gets the key of its incarnation, made from the job's.
pub(super) fn to_rank(message: ToRank, key: &JobKey) -> FromAgent {
    match message {
        ToRank::Departed(departure) => FromAgent::Departed(departure),
        ToRank::Inherited {
            rank,
            incarnation,
            held,
            handle,
        } => FromAgent::Inherited {
            rank,
            incarnation,
            held,
            handle,
        },
        ToRank::Taken => FromAgent::Taken,
        ToRank::Welcome(welcome) => FromAgent::Welcome(Welcome {
            job: welcome.job,
            key: key.key_of(welcome.identity),
            size: welcome.size,
            agent: welcome.agent,
            encrypt: welcome.encrypt,
            detect: welcome.detect,
        }),
    }
}
