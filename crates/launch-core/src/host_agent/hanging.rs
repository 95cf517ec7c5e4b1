//! Ranks that would wait for ever for one that is lost.

use super::HostAgent;
use crate::protocol::Report;

impl HostAgent {
    /// Says when the first rank could hang, and when none can any more: one that has begun with PMI, has not finalized it, and
    /// is not attached, so that it hears of no departure.
    pub(super) fn tell_whether_ranks_may_hang(&mut self) {
        if !self.start.tells_who_may_hang {
            return;
        }
        let may_hang = self
            .running
            .iter()
            .any(|&rank| !self.attached.contains(&rank) && self.pmi.is_unfinished(self.pmi_process(rank)));
        if std::mem::replace(&mut self.may_hang, may_hang) != may_hang {
            self.report(Report::MayHang(may_hang));
        }
    }
}
