//! Reductions whose time is over. Of one that its caller does not want any more it is over at once.

use std::time::{Duration, Instant};

use ropewalk_reduce_core::{GiveUp, Session};

use super::{progress::ProgressThread, session::Running, table_calls::ANNOUNCEMENT_TIME};
use crate::outcome::ReductionError;

impl ProgressThread {
    /// Ends a reduction for all; if the scheduler does not say so, at least here.
    pub(super) fn run_out_of_time(&mut self, session: Session, now: Instant) {
        let Some(running) = self.running.get_mut(&session) else {
            return;
        };
        if !running.has_run_out {
            running.has_run_out = true;
            running.deadline = now.checked_add(SCHEDULER_VERDICT_TIME);
            let (member, reason) = (running.place(), running.reason_to_give_up());
            return self.worker.give_up(session, member, reason);
        }
        let (rank, missing) = (self.shared.rank, Vec::new());
        let error = match running.reason_to_give_up() {
            GiveUp::Cancelled => ReductionError::Cancelled { rank, missing },
            _ => ReductionError::Timeout { rank, missing },
        };
        self.complete(session, Err(error));
    }

    /// The time of all reductions that were cancelled is over.
    pub(super) fn hasten_cancelled(&mut self) {
        self.running.values_mut().for_each(Running::heed_cancel);
        if let Some(tables) = &self.shared.tables {
            tables.all().iter().for_each(|calls| calls.hasten_cancelled());
        }
    }
}

impl Running {
    /// Its time is over if it was cancelled, as soon as those have announced their contributions who are here.
    pub(super) fn heed_cancel(&mut self) {
        if self.completion.is_cancelled() && !self.has_run_out {
            let soon = Instant::now() + ANNOUNCEMENT_TIME;
            self.deadline = Some(self.deadline.map_or(soon, |deadline| deadline.min(soon)));
        }
    }

    /// The reason for which its time is over.
    pub(super) fn reason_to_give_up(&self) -> GiveUp {
        match self.completion.is_cancelled() {
            true => GiveUp::Cancelled,
            false => GiveUp::TimedOut,
        }
    }
}

/// So long after a reduction's time is over the scheduler is waited for to say so.
const SCHEDULER_VERDICT_TIME: Duration = Duration::from_secs(5);
