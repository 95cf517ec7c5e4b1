//! Copies of checkpoints on another host, so that the loss of a host costs no more than the work since the last copy.
//!
//! The hosts of a job stand in a ring, and each [guards](Guard) the one before it: it asks what that host's
//! ranks have saved, pulls it, and keeps it in its own directory as if its own ranks had saved it. Saves of
//! the fast [level](crate::Level) stay where they are: they are for failures that leave the host as it is.
//! When the job starts again, [`plan_recovery`] takes the newest generation of which every rank's part is
//! whole on any host, and says who has to fetch what. Nothing of that is in the way of the ranks: a partner
//! that is dead or slow is noticed by the partner's guard, never by a save.
//!
//! All of it is decided from what hosts say they have; who asks, pulls and removes is elsewhere.

mod guard;
mod orders;
mod protection;
mod recovery;
mod ring;
#[cfg(test)]
mod under_way;
mod whole;

use serde::{Deserialize, Serialize};

use crate::{
    advisor::Level,
    generation::{Held, Restarts},
};

pub use guard::{Action, Guard, GuardOptions};
pub use orders::{PartnerOrders, PartnerOrdersError, Ready, Said};
pub use recovery::{Fetch, NUMBERS_LEFT_OUT, Recovery, plan_recovery};
pub use ring::{guarded_by, partner_of};

/// One rank's part of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// The number of the generation.
    pub generation: u64,
    /// Whose part it is.
    pub rank: u32,
    /// The step that was saved.
    pub step: u64,
    /// How many ranks saved together.
    pub ranks: u32,
    /// The level of the save: a full one is to be copied, a fast one is not.
    pub level: Level,
}

impl Part {
    /// The checkpoint that the rank holds if it has this part.
    pub fn held(&self) -> Held {
        Held {
            generation: self.generation,
            step: self.step,
            ranks: self.ranks,
        }
    }
}

/// All that one host has of a job's checkpoints, its own ranks' and copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The parts that were found whole.
    pub parts: Vec<Part>,
    /// The highest number that it has seen, also of checkpoints that are torn or in quarantine.
    pub highest: u64,
    /// From what each rank last started, as far as it is noted here.
    pub restarts: Vec<(u32, Restarts)>,
}

#[cfg(test)]
impl Part {
    /// A rank's part of a full save of two ranks.
    pub(crate) fn of_two(generation: u64, rank: u32) -> Self {
        Self {
            generation,
            rank,
            step: generation * 10,
            ranks: 2,
            level: Level::Full,
        }
    }
}
