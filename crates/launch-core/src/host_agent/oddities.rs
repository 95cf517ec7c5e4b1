//! Odd things about ranks, not told too often: the launcher could otherwise have its memory filled with them.

use std::collections::BTreeMap;

use ropewalk_names::Rank;

/// How often the launcher heard of odd things.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    notices: BTreeMap<Rank, u32>,
    /// A rank put something else under a key.
    overwritten: BTreeMap<Rank, u32>,
}

impl Oddities {
    /// How often the launcher hears of something odd about a rank.
    pub(super) const TOLD_MAX: u32 = 16;

    /// Counts a notice. Returns `true` if it is to be told.
    pub(super) fn notice(&mut self, rank: Rank) -> bool {
        count(self.notices.entry(rank).or_default())
    }

    /// Counts a key that was overwritten. Returns `true` if it is to be told.
    pub(super) fn overwritten(&mut self, rank: Rank) -> bool {
        count(self.overwritten.entry(rank).or_default())
    }
}

fn count(told: &mut u32) -> bool {
    let is_told = *told < Oddities::TOLD_MAX;
    *told += u32::from(is_told);
    is_told
}
