//! The copies that ranks keep of the originals of others.

use ropewalk_reduce_core::{FromScheduler, Member, Session, Site, Term, ToScheduler, WorkerAction};

use super::{GROUP, Job, MESSAGE_BYTES, What, what::Results};
use crate::Process;

impl Job<'_> {
    /// A copy has nothing of what nobody needs any more when it is made, as the scheduler says that its keeper follows.
    pub(super) fn leave_out_settled(&mut self, copy: Process, member: Member, keeper: u32) {
        let seat = self.sites[keeper as usize].seat;
        let Some(scheduler) = &self.sites[seat.0 as usize].scheduler else {
            return;
        };
        let settled = self.open.clone().map(|call| {
            (
                call,
                scheduler
                    .settled_bytes(Session { group: GROUP, call }, member)
                    .unwrap_or_default(),
            )
        });
        let begins = settled.filter(|(_, bytes)| *bytes > 0).collect();
        self.sites[copy.0 as usize].begins = begins;
    }

    /// A rank follows a new scheduler, and first tells it of the copy that it keeps.
    pub(super) fn announce_copy(&mut self, keeper: Process, seat: Site, term: Term) {
        let copy = self.copy_kept_by(keeper.0);
        let worker = &mut self.sites[copy.0 as usize].worker;
        worker.handle_scheduler(seat, FromScheduler::NewTerm(term));
        while let Some(action) = worker.poll_action() {
            let WorkerAction::Tell(_, ToScheduler::Standing { sessions, .. }) = action else {
                continue;
            };
            for standing in sessions.into_iter().filter(|standing| standing.end.is_none()) {
                let message = ToScheduler::Announce {
                    session: standing.session,
                    call: standing.call,
                    originals: standing.originals,
                    are_enclosed: false,
                };
                let what = What::ToScheduler(Site(copy.0), message, Results::new());
                self.simulation.send(copy, Process(seat.0), MESSAGE_BYTES, what);
            }
        }
    }

    /// The copy that a rank keeps, if any was made.
    pub(super) fn copy_kept_by(&self, rank: u32) -> Process {
        let hosts = self.setting.hosts;
        Process(2 * hosts + (rank + hosts - 1) % hosts)
    }
}
