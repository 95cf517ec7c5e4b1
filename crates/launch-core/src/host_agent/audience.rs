//! Ranks that are attached, and their news.

use std::collections::{BTreeSet, VecDeque};

use ropewalk_names::Rank;

use super::{Action, ToRank};
use crate::protocol::Report;

/// The ranks that hear of departures.
#[derive(Debug, Default)]
pub(super) struct Audience {
    attached: BTreeSet<Rank>,
    has_attached: bool,
    /// All that every attached rank hears, from the first day.
    announcements: Vec<ToRank>,
}

impl Audience {
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.attached.contains(&rank)
    }

    /// A rank attaches, and hears all that was announced. Returns `false` if it had attached before.
    pub(super) fn attach(&mut self, rank: Rank, actions: &mut VecDeque<Action>) -> bool {
        if !self.attached.insert(rank) {
            return false;
        }
        if !std::mem::replace(&mut self.has_attached, true) {
            actions.push_back(Action::Report(Report::Attached));
        }
        let announced = self.announcements.iter().cloned();
        actions.extend(announced.map(|message| Action::SendLink(rank, message)));
        true
    }

    /// A rank is gone. Returns `true` if it was attached.
    pub(super) fn leave(&mut self, rank: Rank) -> bool {
        self.attached.remove(&rank)
    }

    /// Nobody needs any more what a rank has left.
    pub(super) fn forget_inherited(&mut self, rank: Rank) {
        self.announcements
            .retain(|message| !matches!(message, ToRank::Inherited { rank: of, .. } if *of == rank));
    }

    pub(super) fn announce(&mut self, actions: &mut VecDeque<Action>, message: ToRank) {
        let ranks = self.attached.iter();
        actions.extend(ranks.map(|&rank| Action::SendLink(rank, message.clone())));
        self.announcements.push(message);
    }
}
