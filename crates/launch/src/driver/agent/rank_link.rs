//! Translates between the packets of the link to a rank and the agent's mind.

use ropewalk_fabric::{FromAgent, Held, JobKey, ToAgent, Welcome};
use ropewalk_launch_core::host_agent::{FromRank, ToRank};

/// A packet of a rank, for the mind.
pub(super) fn from_rank(packet: ToAgent) -> FromRank {
    match packet {
        ToAgent::Attach => FromRank::Attach,
        ToAgent::Hold(held) => FromRank::Hold(held),
        ToAgent::HoldLabelled(id) => FromRank::Hold(Held {
            id,
            label: Vec::new(),
        }),
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
