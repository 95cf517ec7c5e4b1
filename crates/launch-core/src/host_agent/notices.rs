//! Odd things about ranks, not told too often.

use ropewalk_names::Rank;

use super::HostAgent;
use crate::protocol::Report;

impl HostAgent {
    /// How often the launcher hears of something odd about a rank, which could otherwise fill its memory with it.
    pub(super) const NOTICES_MAX: u32 = 16;

    pub(super) fn notice(&mut self, rank: Rank, text: String) {
        let notices = self.notices.entry(rank).or_default();
        if *notices == Self::NOTICES_MAX {
            return;
        }
        *notices += 1;
        self.report(Report::Notice { rank, text });
    }

    pub(super) fn tell_of_overwritten(&mut self, rank: Rank, key: String) {
        let told = self.overwritten.entry(rank).or_default();
        if *told < Self::NOTICES_MAX {
            *told += 1;
            self.report(Report::Overwritten { rank, key });
        }
    }
}
