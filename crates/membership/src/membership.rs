//! Which ranks of a job are alive: the one place where that is decided.

use std::{collections::BTreeMap, fmt};

use ropewalk_names::{Epoch, Incarnation, Rank};
use serde::{Deserialize, Serialize};

/// The membership of one job: every rank starts alive, and each departure raises the epoch.
///
/// Call [`handle_departure`](Self::handle_departure) when a process is known to be gone; a departure told
/// twice, or of an incarnation that was replaced already, changes nothing.
#[derive(Clone, Debug)]
pub struct Membership {
    size: u32,
    epoch: Epoch,
    /// Of the ranks that are not in their first one: few, and each host of a job of a million ranks keeps them.
    later_incarnations: BTreeMap<Rank, Incarnation>,
    departed: BTreeMap<Rank, Departure>,
}

impl Membership {
    /// A membership of `size` ranks, all alive in their first incarnation.
    pub fn new(size: u32) -> Self {
        Self {
            size,
            epoch: Epoch(0),
            later_incarnations: BTreeMap::new(),
            departed: BTreeMap::new(),
        }
    }

    /// Records that `rank` is gone. Returns the departure under its new epoch, or `None` if this was known,
    /// concerns an older incarnation, or names no rank of the job.
    pub fn handle_departure(
        &mut self,
        rank: Rank,
        incarnation: Incarnation,
        cause: Cause,
    ) -> Option<Departure> {
        let current = self.incarnation(rank)?;
        if current != incarnation || self.departed.contains_key(&rank) {
            return None;
        }
        self.epoch = self.epoch.next();
        let departure = Departure {
            rank,
            incarnation,
            epoch: self.epoch,
            cause,
        };
        self.departed.insert(rank, departure);
        Some(departure)
    }

    /// Records that `rank` has another process. Returns whether it had none, and this is a later life of it.
    pub fn handle_return(&mut self, rank: Rank, incarnation: Incarnation) -> bool {
        let Some(current) = self.incarnation(rank) else {
            return false;
        };
        if incarnation <= current || !self.departed.contains_key(&rank) {
            return false;
        }
        self.later_incarnations.insert(rank, incarnation);
        self.departed.remove(&rank);
        self.epoch = self.epoch.next();
        true
    }

    /// Further ranks join, alive, behind those that are there.
    pub fn grow(&mut self, ranks: u32) {
        self.size += ranks;
    }

    /// How many ranks the job has had.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of the present membership.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns true if `rank` belongs to the job and is not known to be gone.
    pub fn is_alive(&self, rank: Rank) -> bool {
        rank.0 < self.size && !self.departed.contains_key(&rank)
    }

    /// The current incarnation of `rank`, if it belongs to the job.
    pub fn incarnation(&self, rank: Rank) -> Option<Incarnation> {
        let later = self.later_incarnations.get(&rank).copied();
        (rank.0 < self.size).then(|| later.unwrap_or(Incarnation(0)))
    }

    /// All that is known of the ranks that are gone, in order of rank.
    pub fn departed(&self) -> impl Iterator<Item = &Departure> {
        self.departed.values()
    }
}

/// One rank's leaving, as the authority on membership recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Who is gone.
    pub rank: Rank,
    /// Which life of that rank ended.
    pub incarnation: Incarnation,
    /// The membership that begins with this departure.
    pub epoch: Epoch,
    /// Why.
    pub cause: Cause,
}

/// Why a process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Cause {
    /// It returned or called `exit` with this code.
    Exited(i32),
    /// This signal killed it.
    Signalled(i32),
    /// The agent of its host was lost, and the process with it.
    AgentLost,
}

impl Cause {
    /// Returns true if a process that did its work ends like this.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(signal) => write!(f, "killed by signal {signal}"),
            Self::AgentLost => f.write_str("lost with the agent of its host"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A departure counts once, and one of an incarnation that is not the current one never.
    #[test]
    fn departures_count_once_and_only_for_the_current_incarnation() {
        let mut members = Membership::new(3);
        assert_eq!(
            members.handle_departure(Rank(1), Incarnation(7), Cause::Exited(0)),
            None
        );
        let first = members.handle_departure(Rank(1), Incarnation(0), Cause::Signalled(9));
        assert_eq!(first.map(|departure| departure.epoch), Some(Epoch(1)));
        assert_eq!(
            members.handle_departure(Rank(1), Incarnation(0), Cause::Signalled(9)),
            None
        );
        assert_eq!(
            members.handle_departure(Rank(3), Incarnation(0), Cause::Exited(0)),
            None
        );
        assert_eq!(members.epoch(), Epoch(1));
        assert!(!members.handle_return(Rank(0), Incarnation(1)), "it never left");
        assert!(members.handle_return(Rank(1), Incarnation(1)) && members.is_alive(Rank(1)));
        assert!(!members.handle_return(Rank(1), Incarnation(1)));
        assert_eq!(members.epoch(), Epoch(2));
        let late = members.handle_departure(Rank(1), Incarnation(0), Cause::Exited(0));
        assert_eq!(late, None, "that was the life before");
        let again = members.handle_departure(Rank(1), Incarnation(1), Cause::Exited(0));
        assert!(again.is_some());
        members.grow(1);
        assert!(members.is_alive(Rank(3)) && !members.is_alive(Rank(4)) && members.size() == 4);
        assert!(members.is_alive(Rank(0)) && !members.is_alive(Rank(1)));
    }
}
